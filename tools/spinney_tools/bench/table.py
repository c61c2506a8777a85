"""Tables in Markdown, aligned so that they can be read in a terminal too, and their place in README.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class ReadmeError(Exception):
    """README.md has no place for a table."""


@dataclass(frozen=True, slots=True)
class Table:
    """What one benchmark found. `name` is also the name of its place in README.md."""

    name: str
    machine: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    measured: bool = True
    """Where not, the first line of the notes says what is simulated, modelled or chosen."""

    def markdown(self) -> str:
        """Notes, the machine and the table. The first line says how the figures came about."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        rule = [("-" * (width - 1) + ":") if column else "-" * width for column, width in enumerate(widths)]
        lines = [_row(self.header, widths), _row(rule, widths)]
        lines += [_row(row, widths) for row in self.rows]
        machine = f"Measured on: {self.machine}." if self.measured else f"Run on: {self.machine}."
        head = [machine, *self.notes] if self.measured else [*self.notes, machine]
        return "\n".join([*head, "", *lines])


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return "| " + " | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]) + " |"


def number(value: float) -> str:
    """Three significant digits, thousands grouped."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def update_readme(readme: Path, table: Table) -> None:
    """Puts the table between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`."""
    opening, closing = f"<!-- bench:{table.name} -->", f"<!-- /bench:{table.name} -->"
    text = readme.read_text(encoding="utf-8")
    before, found, rest = text.partition(opening)
    _, closed, after = rest.partition(closing)
    if not found or not closed:
        raise ReadmeError(f"{readme} has no place for this table: {opening} ... {closing}")
    readme.write_text(f"{before}{opening}\n{table.markdown()}\n{closing}{after}", encoding="utf-8")
