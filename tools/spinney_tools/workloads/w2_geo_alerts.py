"""W2, geo alerts: type = T AND value > a high quantile of T AND a small box; very few match.

Positions cluster at 200 hot spots with Zipf weights; a tenth of the subscriptions and 30 % of the events are uniform.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from .model import Attribute, Floats, Integers, Workload, rows

_TYPES = ("temp", "hum", "CO", "NO2", "SO2", "O3", "PM10", "noise")
_SPOTS = 200
_EVENTS = 10_000
_SOUTH, _HEIGHT = 4575000, 10000
_WEST, _WIDTH = 1590000, 20000

ATTRIBUTES = (
    Attribute("type", strings=_TYPES),
    Attribute("value", 2, 0, 100000),
    Attribute("lat", 5, _SOUTH, _SOUTH + _HEIGHT),
    Attribute("long", 5, _WEST, _WEST + _WIDTH),
)


@dataclass(frozen=True, slots=True)
class _City:
    """What events and subscriptions share: where the hot spots are and how the values of each type spread."""

    spot_x: Floats
    spot_y: Floats
    weight: Floats
    mu: Floats
    sigma: Floats

    def positions(self, rng: np.random.Generator, count: int, uniform_share: float) -> tuple[Floats, Floats]:
        """Points in the unit square."""
        spot = rng.choice(_SPOTS, count, p=self.weight)
        x = np.clip(self.spot_x[spot] + rng.normal(0, 0.02, count), 0, 1)
        y = np.clip(self.spot_y[spot] + rng.normal(0, 0.02, count), 0, 1)
        anywhere = rng.random(count) < uniform_share
        x[anywhere] = rng.random(anywhere.sum())
        y[anywhere] = rng.random(anywhere.sum())
        return x, y

    def values(self, logarithm: Floats) -> Integers:
        """Log-normal values on the grid."""
        return np.clip(np.rint(np.exp(logarithm)), 0, ATTRIBUTES[1].high).astype(np.int64)


def _city(rng: np.random.Generator) -> _City:
    spot_x, spot_y = rng.random(_SPOTS), rng.random(_SPOTS)
    weight = 1 / np.arange(1, _SPOTS + 1) ** 1.2
    types = len(_TYPES)
    return _City(spot_x, spot_y, weight / weight.sum(), rng.uniform(6, 10, types), rng.uniform(0.2, 0.6, types))


def _event_columns() -> list[Integers]:
    rng = np.random.default_rng(202)
    city = _city(rng)
    kind = rng.integers(0, len(_TYPES), _EVENTS)
    value = city.values(rng.normal(city.mu[kind], city.sigma[kind]))
    x, y = city.positions(rng, _EVENTS, 0.3)
    return [kind, value, (_SOUTH + x * _HEIGHT).astype(np.int64), (_WEST + y * _WIDTH).astype(np.int64)]


def _side(centre: Floats, half: Floats, low: int, length: int) -> tuple[Integers, Integers]:
    """A box's closed range along one side, at least one step wide."""
    start = np.clip(low + (centre - half) * length, low, low + length).astype(np.int64)
    end = np.clip(low + (centre + half) * length, low, low + length).astype(np.int64)
    return start, np.maximum(end, start + 1)


def _subscriptions(count: int) -> Iterator[str]:
    city = _city(np.random.default_rng(202))
    rng = np.random.default_rng(2000 + count)
    quantiles = np.array([NormalDist().inv_cdf(p / 1000) for p in range(1, 1000)])
    kind, quantile = rng.integers(0, len(_TYPES), count), rng.integers(699, 995, count)  # 70.0 % to 99.5 %
    threshold = city.values(city.mu[kind] + city.sigma[kind] * quantiles[quantile])
    x, y = city.positions(rng, count, 0.1)
    half_x, half_y = rng.uniform(0.005, 0.05, count) / 2, rng.uniform(0.005, 0.05, count) / 2
    lat = _side(x, half_x, _SOUTH, _HEIGHT)
    long = _side(y, half_y, _WEST, _WIDTH)
    _, value_of, lat_of, long_of = (attribute.text for attribute in ATTRIBUTES)
    for t, limit, south, north, west, east in rows(kind, threshold, *lat, *long):
        yield (
            f"4 0 S {_TYPES[t]} 1 > {value_of(limit)}"
            f" 2 B {lat_of(south)} {lat_of(north)} 3 B {long_of(west)} {long_of(east)}"
        )


WORKLOAD = Workload("W2", "geo alerts", ATTRIBUTES, (1_000, 10_000, 100_000, 1_000_000), _event_columns, _subscriptions)
