"""What is being set up beside this cloud, as whoever does it writes it down for the page: `spinney up`'s pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson

FILE: Final = "run/setup-status.json"
"""In the data directory, while something is being set up."""
MAX_BYTES: Final = 4_096
MAX_TEXT: Final = 300


def read(data: Path) -> dict[str, Any] | None:
    """`text`, and what `share` of it is done if that is known; None if nothing is being set up."""
    try:
        with (data / FILE).open("rb") as file:
            told = orjson.loads(file.read(MAX_BYTES))
    except (OSError, orjson.JSONDecodeError):
        return None
    if not isinstance(told, dict) or not isinstance(told.get("text"), str):
        return None
    done, size = told.get("done"), told.get("size")
    share = min(1.0, done / size) if isinstance(done, int) and isinstance(size, int) and size > 0 else None
    return {"text": told["text"][:MAX_TEXT], "share": share}
