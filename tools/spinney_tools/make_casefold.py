"""Writes native/src/casefold_table.h from spinney.casefold: python -m spinney_tools.make_casefold."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from spinney.casefold import EXPANSIONS, RANGES, UNICODE_VERSION

HEADER = Path(__file__).parents[2] / "native" / "src" / "casefold_table.h"

_LINE_LENGTH = 120


def header_text() -> str:
    """The header as it should be."""
    ranges = (f"{{0x{first:04X}, 0x{last:04X}, {step}, {delta}}}" for first, last, step, delta in RANGES)
    expansions = (f"{{0x{code:04X}, {_length(text)}, {_c_string(text)}}}" for code, text in sorted(EXPANSIONS.items()))
    return f"""\
// Made by spinney_tools/make_casefold.py from spinney/casefold.py: figures of Unicode {UNICODE_VERSION}.
// Only casefold.c reads this.

#ifndef SPINNEY_CASEFOLD_TABLE_H
#define SPINNEY_CASEFOLD_TABLE_H

#include <stdint.h>

// Each step-th code point from first to last folds to itself plus delta. In order, without overlap.
typedef struct casefold_range {{
  uint32_t first, last, step;
  int32_t delta;
}} casefold_range;

static const casefold_range casefold_ranges[] = {{
{_rows(ranges)}
}};

// Code points that fold to more than one. In order.
typedef struct casefold_expansion {{
  uint32_t code, length;
  char text[8];
}} casefold_expansion;

static const casefold_expansion casefold_expansions[] = {{
{_rows(expansions)}
}};

#endif
"""


def _length(text: str) -> int:
    return len(text.encode())


def _c_string(text: str) -> str:
    return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'


def _rows(items: Iterable[str]) -> str:
    rows = [" "]
    for item in items:
        if len(rows[-1]) + len(item) + 2 > _LINE_LENGTH:
            rows.append(" ")
        rows[-1] += f" {item},"
    return "\n".join(rows)


def main() -> int:
    """Write the header; say so."""
    HEADER.write_text(header_text(), encoding="utf-8")
    print(f"wrote {HEADER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
