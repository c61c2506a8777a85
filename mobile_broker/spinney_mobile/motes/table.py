"""The filter table of one mote: which programs are wanted there, which are there, and what to change.

Each program has a number of its own, under which the mote tells its events. A number is given anew only when neither
the mote's table nor an event that waits there can mean what it was given for before.

When there is no room for all: filters that keep a bit come before those that send what they match; of either the ones
that are there already come first, then the oldest, so that bits stay where they are. If one is left out, or cannot be
decided on the mote, the mote sends every sample, the broker decides, and programs that only let samples through go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spinney.expression import Value
from spinney.mote import addressed
from spinney.mote.link import MAX_STAGED, MAX_STAGED_BYTES
from spinney.mote.protocol import program_crc, table_crc

from ..samples import Digest
from .programs import EVERYTHING, NoProgram, Program

DEFAULT_BYTES: Final = 8192
"""What a mote's table holds unless it was configured otherwise; less is learned when it refuses."""
HEADER_BYTES: Final = 20
ENTRY_BYTES: Final = 15
"""Beside each program."""
MAX_PROGRAMS: Final = 64
"""Of one mote: after a restart one sample may give a label to each, and all of those must fit into its ring."""
LEAST_PROGRAMS: Final = 8
MAX_NUMBER: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Entry:
    """What a number stands for, in the table or in events that still wait."""

    number: int
    digest: Digest
    program: bytes
    meaning: int
    keeps_bit: bool
    value: Value | None
    epoch: int

    @property
    def crc(self) -> int:
        """As the mote lists it."""
        return program_crc(self.program)

    def to_json(self) -> list[Any]:
        """As a list that json.dumps takes."""
        return [
            self.number, self.digest, self.program.hex(), self.meaning, self.keeps_bit, self.value, self.epoch
        ]  # fmt: skip

    @classmethod
    def from_json(cls, item: list[Any]) -> Entry:
        """What gave this list."""
        return cls(item[0], item[1], bytes.fromhex(item[2]), *item[3:])


@dataclass(frozen=True, slots=True)
class Plan:
    """What the table is to be."""

    entries: Mapping[int, Entry] = field(default_factory=dict)
    here: Mapping[Digest, str] = field(default_factory=dict)
    """The filters that the broker decides, and why."""

    @property
    def sends_everything(self) -> bool:
        """Whether every sample comes."""
        return any(entry.digest == EVERYTHING for entry in self.entries.values())


Change = tuple[dict[int, bytes], list[int]]
"""Of one commit: programs to put, numbers to drop."""


class Table:
    """Pure: it talks to nobody."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        """By number; those that are in no table any more, too, until the mote's events are all here."""
        self.held: dict[int, int] = {}
        """What the mote holds, as far as is known: the CRC of each program."""
        self.bytes = DEFAULT_BYTES
        self.most = MAX_PROGRAMS
        self._stale: set[int] = set()

    # ---- what is wanted

    def plan(self, made: Mapping[Digest, Program | NoProgram], all_samples: Program, epoch: int) -> Plan:
        """The table for these filters, and which are left to the broker."""
        chosen, here = self._choose(made, all_samples)
        entries: dict[int, Entry] = {}
        usable = [entry for number, entry in self.entries.items() if number not in self._stale]
        known = {self._key(entry): entry for entry in sorted(usable, key=self._is_held)}
        for program in chosen:
            entry = known.get((program.digest, program.meaning, epoch))
            if entry is None:
                entry = _entry(self._free(entries), program, epoch)
            entries[entry.number] = entry
        return Plan(entries, here)

    @staticmethod
    def _key(entry: Entry) -> tuple[Digest, int, int]:
        return entry.digest, entry.meaning, entry.epoch

    def _free(self, taken: Mapping[int, Entry]) -> int:
        number = 1
        while number in self.entries or number in self.held or number in taken:
            number += 1
        return number

    def _choose(
        self, made: Mapping[Digest, Program | NoProgram], all_samples: Program
    ) -> tuple[list[Program], dict[Digest, str]]:
        """The programs that are put, and of the others why not."""
        here: dict[Digest, str] = {}
        bits: list[Program] = []
        feeds: list[Program] = []
        for one in made.values():
            if isinstance(one, Program):
                (bits if one.keeps_bit else feeds).append(one)
                if not one.keeps_bit and not one.exact:
                    here[one.digest] = one.why
            elif not one.never:
                here[one.digest] = one.why
        all_needed = any(isinstance(one, NoProgram) and not one.never for one in made.values())
        room = _Room(self.bytes, self.most)
        room.take(all_samples)  # it must fit whenever something else does not
        chosen = [one for one in self._ordered(bits) if room.take(one)]
        fitting = [] if all_needed else [one for one in self._ordered(feeds) if room.take(one)]
        all_needed = all_needed or len(chosen) + len(fitting) < len(bits) + len(feeds)
        if not all_needed:
            return [*chosen, *fitting], here
        there = {one.digest for one in chosen}
        here |= {one.digest: "the mote's table is full" for one in bits if one.digest not in there}
        here |= {one.digest: "the mote sends every sample" for one in feeds if one.digest not in here}
        return [*chosen, all_samples], here

    def _ordered(self, programs: Iterable[Program]) -> list[Program]:
        there = {entry.digest for entry in self.entries.values() if self._is_held(entry)}
        return sorted(programs, key=lambda one: one.digest not in there)

    # ---- what is there

    def found(self, held: Mapping[int, int]) -> bool:
        """What the mote has listed; whether some of it is not ours, whose numbers are then not to be used.

        Such a program may have a bit that we know nothing of, even where it says the same as ours. A number that was
        ours means nothing any more: events under it may be those of the program that somebody else has put there.
        """
        self.held = dict(held)
        strange = [number for number, crc in held.items() if not self._knows(number, crc)]
        for number in strange:
            self.entries.pop(number, None)
        return bool(strange)

    def _knows(self, number: int, crc: int) -> bool:
        return number in self.entries and self.entries[number].crc == crc

    @property
    def crc(self) -> int | None:
        """Of the mote's table, if it is as is believed; None if it is known to hold what is not ours."""
        if not all(self._knows(number, crc) for number, crc in self.held.items()):
            return None
        return table_crc([self.entries[number].program for number in self.held])

    def differs(self, plan: Plan) -> bool:
        """Whether the mote holds anything else than is planned."""
        return self.held != {number: entry.crc for number, entry in plan.entries.items()}

    def bits(self, plan: Plan) -> frozenset[Digest]:
        """The filters whose bit the mote keeps now, and means by it what is wanted."""
        wanted = {(entry.digest, entry.meaning) for entry in plan.entries.values() if entry.keeps_bit}
        there = (entry for entry in self.entries.values() if self._is_held(entry))
        return frozenset(entry.digest for entry in there if (entry.digest, entry.meaning) in wanted)

    def _is_held(self, entry: Entry) -> bool:
        return self.held.get(entry.number) == entry.crc

    # ---- what to change

    def begin(self, plan: Plan) -> list[Change]:
        """The commits that make the table what is planned. From now on events may mean either.

        Where one will not do, each goes no further than the mote has room for: what nobody wants any more goes first,
        and what takes the place of something goes with it.
        """
        self.entries |= plan.entries
        add = {n: entry for n, entry in plan.entries.items() if self.held.get(n) != entry.crc}
        drop = [number for number in self.held if number not in plan.entries]
        units: list[Change] = [({n: e.program}, []) for n, e in add.items() if e.digest == EVERYTHING]
        replaced = {self.entries[number].digest: number for number in drop if number in self.entries}
        successors = {e.digest for e in add.values() if e.digest != EVERYTHING}
        units += [({}, [number]) for number in drop if not self._is_replaced(number, successors)]
        for number, entry in add.items():
            if entry.digest != EVERYTHING:
                old = replaced.get(entry.digest)
                units.append(({number: entry.program}, [] if old is None else [old]))
        return _packed(units)

    def _is_replaced(self, number: int, successors: set[Digest]) -> bool:
        return number in self.entries and self.entries[number].digest in successors

    def changed(self, change: Change) -> None:
        """The mote has made a commit."""
        add, drop = change
        for number in drop:
            self.held.pop(number, None)
        self.held |= {number: program_crc(program) for number, program in add.items()}

    def drained(self) -> None:
        """All events that the mote had after its last commit are here: numbers that are not in its table are free."""
        self.entries = {number: entry for number, entry in self.entries.items() if number in self.held}
        self._stale &= self.entries.keys()

    def renew(self) -> None:
        """Events were lost, labels perhaps among them: bits are to be unknown again, by programs under new numbers."""
        self._stale |= {number for number, entry in self.entries.items() if entry.keeps_bit}

    def forget_bits(self, gone: Collection[Digest]) -> bool:
        """These are not wanted any more; whether there were any. Should they come back, their bits are unknown."""
        numbers = {n for n, entry in self.entries.items() if entry.keeps_bit and entry.digest in gone}
        is_news = not numbers <= self._stale
        self._stale |= numbers
        return is_news

    def has_only(self, room: int) -> bool:
        """The mote says how many bytes there are; whether that is news."""
        is_news = room < self.bytes
        self.bytes = min(room, self.bytes)
        return is_news

    def shrink_count(self) -> None:
        """The mote's ring has no room for what one sample may give."""
        self.most = max(LEAST_PROGRAMS, self.most * 3 // 4)

    # ---- what is kept

    def to_json(self) -> dict[str, Any]:
        """As objects that json.dumps takes."""
        return {
            "entries": [entry.to_json() for entry in self.entries.values()],
            "held": list(self.held.items()),
            "stale": sorted(self._stale),
            "bytes": self.bytes,
            "most": self.most,
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Table:
        """What gave these objects."""
        self = cls()
        entries = [Entry.from_json(entry) for entry in item["entries"]]
        self.entries = {entry.number: entry for entry in entries}
        self.held = dict(item["held"])
        self._stale = set(item["stale"])
        self.bytes, self.most = item["bytes"], item["most"]
        return self


class _Room:
    def __init__(self, bytes_: int, count: int) -> None:
        self._bytes = bytes_ - HEADER_BYTES
        self._count = count + 1

    def take(self, program: Program) -> bool:
        """Whether it fits, too; then its room is taken."""
        size = ENTRY_BYTES + len(program.code)
        if size > self._bytes or not self._count:
            return False
        self._bytes -= size
        self._count -= 1
        return True


def _entry(number: int, program: Program, epoch: int) -> Entry:
    return Entry(
        number,
        program.digest,
        addressed(program.code, number, epoch & 0xFFFFFFFF),
        program.meaning,
        program.keeps_bit,
        program.value,
        epoch,
    )


def _packed(units: Iterable[Change]) -> list[Change]:
    """As few commits as fit, in order; a unit is not divided."""
    commits: list[Change] = []
    count = size = 0
    for add, drop in units:
        more, bytes_ = len(add) + len(drop), sum(map(len, add.values()))
        if not commits or count + more > MAX_STAGED or size + bytes_ > MAX_STAGED_BYTES:
            commits.append(({}, []))
            count = size = 0
        commits[-1][0].update(add)
        commits[-1][1].extend(drop)
        count, size = count + more, size + bytes_
    return commits
