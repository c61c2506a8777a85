"""Announced sources that are here, whether they have anything to tell or not: what is spared is seen by this alone.

One is told to browsers as `["m7", 45.81, 15.97, "pi-3"]`, with null where nobody knows its place; one that is here no
more, or whose mobile broker is away, as `["m7"]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from .channels import Flow

Place = tuple[float, float]


class Presence:
    """Of one tenant."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        """Where sources were announced that stay where they are."""
        self.flow = Flow("present", lambda: b",".join(self._here.values()))
        self._here: dict[str, bytes] = {}

    def put(self, announced: Iterable[Mapping[str, Any]]) -> bool:
        """All that are announced, as discovery has them; whether browsers are to be told anything."""
        here: dict[str, bytes] = {}
        places: dict[str, Place] = {}
        for one in announced:
            name, place = one["name"], _fixed(one["place"])
            if place is not None:
                places[name] = place
            if not one["away"]:
                here[name] = orjson.dumps([name, *(place or (None, None)), one["broker"]])
        changes = [item for name, item in here.items() if self._here.get(name) != item]
        changes += [orjson.dumps([name]) for name in self._here if name not in here]
        self.places, self._here = places, here
        if changes:
            self.flow.put(b",".join(changes))
        return bool(changes)


def _fixed(place: Mapping[str, Any] | None) -> Place | None:
    return (place["lat"], place["long"]) if place is not None and place.get("radius") == 0.0 else None
