"""One mote as the broker knows it, and whether there is a reason to connect to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spinney.mote import Attribute, layout
from spinney.mote.advert import Presence, ScanData
from spinney.mote.adverts import Mode
from spinney.mote.compiler import OLDEST_VERSION, VERSION
from spinney.mote.protocol import AttributeRow, Info, InfoFlag

from .adverts import AdvertPolicy, Adverts
from .identity import Identity, attribute_names, attributes_of
from .open_bits import OpenBits
from .programs import Programs, Wanted
from .table import Plan, Table

IN_REACH_SECONDS: Final = 30.0
"""A mote that was not heard for so long is not connected to: it would not answer."""
AWAKE_SECONDS: Final = 2.0
"""The same of one that sleeps between samples."""
LOOK_SECONDS: Final = 3600.0
"""The longest between two looks at a mote of ours whose scan responses say that nothing has happened."""
BLIND_LOOK_SECONDS: Final = 30.0
"""The same for one whose scan responses are not heard, as by passive scanners."""
BLIND_ADVERTS: Final = 5
"""Without their scan responses, until it is held that those are not heard."""
TIME_SECONDS: Final = 6 * 3600.0
"""Its clock is set again after so long, by which it learns how fast it drifts."""
UNWANTED_SECONDS: Final = 300.0
"""Wanted by nobody for so long, a mote is told to stop sampling; each switch is a write to its flash."""
FIRST_RETRY_SECONDS: Final = 2.0
MAX_RETRY_SECONDS: Final = 300.0
SLEEPER_RETRY_SECONDS: Final = 60.0
"""The longest for one that sleeps, whose few moments must not be missed."""
AHEAD_SECONDS: Final = 2.0
"""A mote's clock that is so much ahead is set at once, and so are all when the broker's own has jumped by more."""
MAX_REFUSALS: Final = 2
_VERSION: Final = 1


class Mote:
    """What is known of it, wanted of it, and planned for it."""

    def __init__(self, address: str, identity: Identity, policy: AdvertPolicy) -> None:
        self.address = address
        self.identity = identity
        self.adverts = Adverts(policy)
        self.called: str | None = None
        """As its adverts call it."""
        self.adapter: str | None = None
        self.heard_at: float | None = None
        self.rssi: int | None = None
        self.scan: ScanData | None = None
        """What its last scan response said, unless it has been connected to since."""
        self.presence: Presence | None = None
        """What its last advert said, if that had no reading, unless it has been connected to since."""
        self._missed = 0
        """Adverts on end without their scan response, since it was connected to: to do so, systems scan actively."""
        self.info: Info | None = None
        self.rows: Sequence[AttributeRow] = ()
        self.names: Sequence[str] = ()
        """Its attributes as they are called here."""
        self.table = Table()
        self.programs = Programs()
        self.program_version = OLDEST_VERSION
        """The newest of those that it runs and the compiler makes."""
        self.open_bits = OpenBits()
        self.wanted: Wanted | None = None
        self.wanted_since = 0.0
        """When it was last wanted by anybody, or not wanted any more."""
        self.plan: Plan | None = None
        """None while it is being made."""
        self.next_event = 0
        """The number of the first event that is not in the outbox; 0: not known."""
        self._dropped = (0, 0)
        """A boot, and how many events its ring had dropped for lack of room when that was last asked."""
        self._newest: tuple[int, int] | None = None
        """Boot and number of the newest sample that it told us of."""
        self.visited_at: float | None = None
        self.clock_set: tuple[float, float] | None = None
        """When its clock was set, by the steady clock and by the one that it was set by."""
        self.told_bits: frozenset[str] | None = None
        """The filters that it is said to evaluate."""
        self.failures = 0
        self.not_before = 0.0
        self.error: str | None = None
        self.refusals = 0
        """How often on end it did not let us write."""
        self.is_none = False
        """It is another kind of device, as it turned out."""

    # ---- what it said

    def kept_back(self, boot: int, sequence: int, *, came: bool) -> int:
        """How many samples it took since it told us of one before, and did not send; `came`: this one it has sent."""
        before = self._newest
        if before is not None and before[0] == boot and sequence <= before[1]:
            return 0
        self._newest = (boot, sequence)
        return sequence - before[1] - came if before is not None and before[0] == boot else 0

    @property
    def source(self) -> str:
        """What its samples are published as."""
        return self.identity.source

    @property
    def attributes(self) -> Sequence[Attribute]:
        """As the compiler wants them."""
        return attributes_of(self.rows, self.identity)

    @property
    def layout(self) -> int:
        """By which it knows that a program is for it: by its own names."""
        return layout(attributes_of(self.rows, Identity(self.source)))

    def hear(
        self, rssi: int | None, scan: ScanData | None, now: float, mode: Mode | None, presence: Presence | None
    ) -> None:
        """An advert of it, with its scan response if that was heard."""
        self.heard_at, self.rssi, self.presence = now, rssi, presence
        if mode is not None:
            self.adverts.hear(mode)
        if scan is not None:
            self.scan = scan
        if presence is not None and not presence.clock_is_set:
            self.clock_set = None
        is_enough = scan is not None or presence is not None
        self._missed = 0 if is_enough else self._missed + 1

    def told(self, info: Info) -> bool:
        """It has said all of itself; whether other programs are for it than before. UnusableMoteError."""
        restarted = self.info is None or info.boot != self.info.boot
        if restarted:
            self.clock_set = None
            self.open_bits.clear()
        self.adverts.told(info, restarted=restarted)
        version = max(OLDEST_VERSION, min(info.program_version, VERSION))
        changed = (tuple(info.attributes), version) != (tuple(self.rows), self.program_version)
        self.info, self.rows, self.program_version = info, info.attributes, version
        self.names = attribute_names(info.attributes, self.identity)
        return changed

    def dropped_since(self, info: Info) -> int:
        """How many events its ring has dropped in this boot that it had not when this was asked before."""
        boot, dropped = self._dropped
        self._dropped = info.boot, info.events_dropped
        return info.events_dropped - dropped if boot == info.boot else info.events_dropped

    @property
    def is_heard_over_gatt(self) -> bool:
        """Not one that lets us read only: its samples are those of its adverts. Once may have been a weak signal."""
        return self.refusals < MAX_REFUSALS and not self.is_none

    @property
    def is_closed(self) -> bool:
        """It lets nobody like us write, and its adverts have no reading: nothing can be had of it."""
        return not self.is_heard_over_gatt and not self.is_none and self.adverts.mode is Mode.PRESENCE

    @property
    def sleeps(self) -> bool:
        """Between its samples: then it can be connected to only in the moment in which it is heard."""
        return self.info is not None and InfoFlag.SLEEPS in self.info.flags

    @property
    def has_committed(self) -> bool:
        """Whether its table is surely what is planned. Of one that is heard by its adverts alone it does not matter."""
        if not self.is_heard_over_gatt:
            return True
        if self.info is None or self.wanted is None or self.plan is None or self.table.differs(self.plan):
            return False
        return self.scan is None or self.scan.table_crc == self.table.crc

    @property
    def is_sampling(self) -> bool:
        """As it said last."""
        return self.info is not None and InfoFlag.SAMPLING_ON in self.info.flags

    # ---- when to connect

    def is_in_reach(self, now: float) -> bool:
        """Whether it was heard so lately that it would answer."""
        reach = AWAKE_SECONDS if self.sleeps else IN_REACH_SECONDS
        return self.heard_at is not None and now - self.heard_at <= reach

    def reason(self, now: float, wall: float) -> str | None:
        """Why to connect to it now, by the steady clock and the wall's; None if there is no reason, or no hope."""
        if now < self.not_before or not self.is_in_reach(now):
            return None
        if self.info is None:
            return "never asked"
        if self.scan is not None and self.scan.boot != self.info.boot & 0xFFFF:
            return "restarted"
        if self.wanted is None or self.plan is None:
            return None
        if self.table.differs(self.plan):
            return "filters"
        if self.switch_sampling(now) is not None:
            return "sampling"
        if self.wanted.filters and self.is_time_due(now, wall):
            return "time"
        if self.adverts.is_due(self.info, now):
            return "adverts"
        if self.open_bits.due(self.next_event - 1):
            return "bits"
        return self._news() or self._look(now)

    def _news(self) -> str | None:
        """What its advert or its scan response says."""
        if self.presence is not None:
            if self.presence.table_crc != self.table.crc:
                return "its table changed"
            return "events" if self.presence.has_events else None
        if self.scan is None:
            return None
        if self.scan.table_crc != self.table.crc:
            return "its table changed"
        return "events" if self.scan.last_event != (self.next_event - 1) & 0xFFFF else None

    def _look(self, now: float) -> str | None:
        assert self.wanted is not None
        if self.visited_at is None:
            return "first look"
        if not self.wanted.filters and not self.table.held:
            return None
        longest = BLIND_LOOK_SECONDS if self._missed >= BLIND_ADVERTS else LOOK_SECONDS
        return "a look" if now - self.visited_at >= longest else None

    def switch_sampling(self, now: float) -> bool | None:
        """What its sampling is to be switched to; None if it is as wanted."""
        if self.wanted is None or bool(self.wanted.filters) == self.is_sampling:
            return None
        if not self.wanted.filters and now - self.wanted_since < UNWANTED_SECONDS:
            return None
        return bool(self.wanted.filters)

    def is_time_due(self, now: float, wall: float) -> bool:
        """Whether its clock is to be set: not yet, long ago, or by a clock that has been set itself since."""
        if self.clock_set is None:
            return True
        set_at, set_by = self.clock_set
        return now - set_at >= TIME_SECONDS or abs((wall - set_by) - (now - set_at)) > AHEAD_SECONDS

    def want(self, wanted: Wanted | None, now: float) -> None:
        """What is wanted of it from now on; None if it is another broker's."""
        before = self.wanted
        self.wanted, self.plan = wanted, None
        if wanted is None:
            self.open_bits.clear()
        if before is None or wanted is None or bool(before.filters) != bool(wanted.filters):
            self.wanted_since = now

    # ---- how it went

    def succeeded(self, now: float) -> None:
        """A connection has come to its end."""
        self.visited_at, self.scan, self.presence, self._missed = now, None, None, 0
        self.failures, self.refusals, self.not_before, self.error = 0, 0, 0.0, None
        self.is_none = False

    def progressed(self) -> None:
        """Something was brought about: if the connection is lost now, the next one need not wait for long."""
        self.failures = self.refusals = 0

    def failed(self, why: str, now: float) -> None:
        """A connection has failed: the next one later, twice as late each time."""
        self.scan = self.presence = None
        self.error = why
        longest = SLEEPER_RETRY_SECONDS if self.sleeps else MAX_RETRY_SECONDS
        self.not_before = now + min(longest, FIRST_RETRY_SECONDS * 2 ** min(self.failures, 16))
        self.failures += 1

    # ---- for pages

    def health(self, *, connected: bool, waiting: bool) -> dict[str, Any]:
        """What is on it, what is not and why, and what went wrong."""
        return {
            "source": self.source,
            "address": self.address,
            "connected": connected,
            "waiting": waiting,
            "filters": len(self.table.held),
            "here": {} if self.plan is None else dict(self.plan.here),
            "sampling": self.is_sampling,
            "adverts": self.adverts.mode.name.lower(),
            "adverts_note": self.adverts.note,
            "error": self.error,
        }

    # ---- what is kept

    def to_bytes(self) -> bytes:
        """What must survive a restart: above all what numbers mean in events that wait."""
        rows = [[row.name, row.unit, row.p, row.q, row.low, row.high, row.object_id] for row in self.rows]
        kept = {
            "version": _VERSION,
            "rows": rows,
            "next_event": self.next_event,
            "dropped": self._dropped,
            "table": self.table.to_json(),
        }
        return json.dumps(kept, separators=(",", ":")).encode()

    def restore(self, kept: bytes) -> None:
        """Become what gave these bytes."""
        item: Mapping[str, Any] = json.loads(kept)
        if item["version"] == _VERSION:
            self.rows = tuple(AttributeRow(*row) for row in item["rows"])
            self.next_event = item["next_event"]
            self._dropped = (item["dropped"][0], item["dropped"][1])
            self.table = Table.from_json(item["table"])
