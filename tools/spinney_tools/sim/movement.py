"""Motes and people that move: to a place, a while there, and on."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from .propagation import Place

_PAUSE_S = (20.0, 300.0)


@dataclass
class Walker:
    """Walks between random places of an area `width_m` by `height_m`, at a speed of its own."""

    place: Place
    speed_m_s: float
    width_m: float
    height_m: float
    chance: random.Random
    _goal: Place | None = None
    _pause_s: float = 0.0

    def step(self, seconds: float) -> Place:
        """Where it is after so many seconds more."""
        while seconds > 0:
            if self._pause_s > 0:
                waited = min(seconds, self._pause_s)
                self._pause_s -= waited
                seconds -= waited
            else:
                seconds = self._walk(seconds)
        return self.place

    def _walk(self, seconds: float) -> float:
        if self._goal is None:
            self._goal = (self.chance.uniform(0, self.width_m), self.chance.uniform(0, self.height_m))
        metres = math.dist(self.place, self._goal)
        reach = self.speed_m_s * seconds
        if reach >= metres:
            self.place, self._goal = self._goal, None
            self._pause_s = self.chance.uniform(*_PAUSE_S)
            return seconds - metres / self.speed_m_s
        share = reach / metres
        x, y = self.place
        self.place = (x + (self._goal[0] - x) * share, y + (self._goal[1] - y) * share)
        return 0.0
