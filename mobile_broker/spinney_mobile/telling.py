"""What an announcement may tell: no more of a source, and of where it is, than its readings do after private rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from spinney.expression import Value

from .announcing import Announcer
from .locating import Locating
from .rules import Rules

T = TypeVar("T")


class Telling:
    """Rules and settings, asked for sources instead of readings."""

    def __init__(self, rules: Rules, locating: Locating) -> None:
        self._rules = rules
        self._locating = locating

    def constants(self, source: str) -> dict[str, Value]:
        """Attributes that all publications of a source have, before any rule."""
        return self._locating.constants(source, self._rules.may_touch)

    def told(self, source: str, attributes: Mapping[str, T]) -> dict[str, T]:
        """Of these attributes of a source the ones that may be announced."""
        names = self._rules.told(source, attributes, self.constants(source))
        return {name: one for name, one in attributes.items() if name in names}

    def may_appear(self, source: str, now: float) -> bool:
        """Whether a source that is here may be announced, whatever it measures."""
        return not self._rules.hides(self._readings(source, now))

    def is_hidden(self, source: str, now: float) -> bool:
        """Whether a source of which we may have spoken is never shared."""
        return self._rules.hides(self._readings(source, now), surely=True)

    def hidden(self, sources: Iterable[str], now: float) -> set[str]:
        """Of these the ones that are never shared."""
        return {source for source in sources if self.is_hidden(source, now)}

    def _readings(self, source: str, now: float) -> dict[str, Value]:
        place = self._locating.own(source, None) or self._locating.here(now)
        return {"source": source, "time": now, **place, **self.constants(source)}

    def place(self, now: float) -> tuple[float, float] | None:
        """Where this broker may say that it is."""
        return self._rules.place(self._locating.here(now), now)

    def restrict(self, announcer: Announcer, now: float) -> None:
        """What has been announced goes on being announced as far as rules and settings of now allow it."""
        for source in announcer.sources:
            constants = self.constants(source)
            told = self._rules.told(source, announcer.names(source), constants)
            announcer.restrict(source, told, constants, now)
