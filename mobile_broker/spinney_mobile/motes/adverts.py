"""What a mote of ours advertises: the mode that settings want, set once its table is right, and renewed at visits.

A mote whose own file fixes the mode, one of the version before and one that does not let us write are left alone, and
why is kept for people.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from spinney.mote.adverts import AdvertState, Bits, Mode, in_force
from spinney.mote.protocol import Info, InfoFlag

RENEW_SECONDS: Final = 3600.0
"""The longest between two renewals..."""
RENEWALS: Final = 3
"""...of which so many fall into the time after which a mote falls back."""
REPAIR_SECONDS: Final = 60.0
"""A mote that is heard in another mode than it was set to is visited after so long."""
OLDER: Final = "its firmware is older: it advertises its readings in the open"
FIXED: Final = "its mote.toml says so"
NO_KEY: Final = "it has no bind key: spinney mote key makes one"
COUNTER_LOST: Final = "its counter is lost or used up: it needs a new bind key, by spinney mote key"


@dataclass(frozen=True, slots=True)
class AdvertPolicy:
    """What settings want of each mote that is ours."""

    mode: Mode | None = Mode.PRESENCE
    """None: whatever it does."""
    open_after_s: int | None = None
    """0: never; None: as the mote's own file says."""


class Adverts:
    """Of one mote. Pure: time is handed in."""

    def __init__(self, policy: AdvertPolicy) -> None:
        self.policy = policy
        self.state: AdvertState | None = None
        """As it answered last."""
        self.note: str | None = None
        """Why it does not advertise as it was told to."""
        self._told = Mode.OPEN
        """In force, as `info` said."""
        self._heard: Mode | None = None
        """In force, as it was heard since it was asked."""
        self._due_at: float | None = None
        """None: at once."""
        self._tried_at = -math.inf

    @property
    def mode(self) -> Mode:
        """What it advertises, as far as is known."""
        return self._told if self._heard is None else self._heard

    def hear(self, mode: Mode) -> None:
        """An advert of it."""
        self._heard = mode

    def told(self, info: Info, *, restarted: bool) -> None:
        """It has said what it is."""
        self._told, self._heard = in_force(info) or Mode.OPEN, None
        if restarted:
            self.state, self._due_at = None, None

    def to_set(self, info: Info) -> Mode | None:
        """What is to be set or renewed at a visit; None if that is not ours to do."""
        if self.policy.mode is None:
            self.note = None
            return None
        if InfoFlag.ADVERT_MODES not in info.flags:
            self.note = OLDER
            return None
        return None if self.state is not None and Bits.FIXED in self.state.bits else self.policy.mode

    def is_due(self, info: Info, now: float) -> bool:
        """Whether to visit it for this alone."""
        if self.to_set(info) is None:
            return False
        if self._due_at is None or now >= self._due_at:
            return True
        differs = self.state is not None and self._heard is not None and self._heard is not self.state.mode
        return differs and now - self._tried_at >= REPAIR_SECONDS

    def answered(self, state: AdvertState, now: float, refusal: str | None = None) -> None:
        """It was set, or refused for this reason."""
        self.state, self._told, self._heard, self._tried_at = state, state.mode, None, now
        self.note = self._why(state, refusal)
        self._due_at = now + (self._renew_seconds(state) if refusal is None else RENEW_SECONDS)

    def _why(self, state: AdvertState, refusal: str | None) -> str | None:
        if Bits.FIXED in state.bits:
            return FIXED
        if refusal is not None or state.mode is self.policy.mode:
            return refusal
        if self.policy.mode is Mode.ENCRYPTED:
            return COUNTER_LOST if Bits.KEY_SPENT in state.bits else NO_KEY
        return None

    @staticmethod
    def _renew_seconds(state: AdvertState) -> float:
        """Only presence falls back."""
        if state.set is not Mode.PRESENCE or not state.open_after:
            return math.inf
        return min(RENEW_SECONDS, state.open_after / RENEWALS)
