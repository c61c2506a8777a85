"""H3 cells, with types."""

from __future__ import annotations

import h3  # type: ignore[import-untyped]  # ships without types


def is_cell(text: str) -> bool:
    """Whether this names a cell."""
    return bool(h3.is_valid_cell(text))


def cell_at(lat: float, long: float, resolution: int) -> str:
    """The cell around a point."""
    return str(h3.latlng_to_cell(lat, long, resolution))


def centre(cell: str) -> tuple[float, float]:
    """Latitude and longitude of a cell's centre."""
    lat, long = h3.cell_to_latlng(cell)
    return float(lat), float(long)


def corners(cell: str) -> list[tuple[float, float]]:
    """Latitude and longitude of a cell's corners."""
    return [(float(lat), float(long)) for lat, long in h3.cell_to_boundary(cell)]


def cell_within(cell: str, resolution: int) -> str | None:
    """The cell of this resolution that a finer one is in, or a coarser one as it is; None for what is no cell."""
    if not is_cell(cell):
        return None
    return cell if h3.get_resolution(cell) <= resolution else str(h3.cell_to_parent(cell, resolution))
