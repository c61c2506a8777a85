"""From samples to events: the evaluator of state filters (rules S1, S2, S6), as in spinney.evaluator on the host.

Each state filter has a bit, unknown at first. A sample that sets it becomes a label; all others are suppressed. One
that the mote cannot decide goes to the owner, and leaves the bit unknown until the owner or another sample sets it.
What content filters want goes once, whoever else wants it: the broker examines it again.
"""

from struct import pack_into, unpack_from

from . import ring, table
from .exact import has_moved
from .programs import (
    CRITICAL,
    DEAD_BAND,
    DEBOUNCE,
    HEADER,
    HEARTBEAT,
    STATE,
    WEAKER,
    doubt_size,
    filter_id,
    number,
    option_at,
    options_size,
)

NOTHING = -1
UNDECIDED = -2


class Labels:
    """Examines samples by the programs of a table and puts events into a ring; `run` is a machine's.

    `scales` has (p, q) of each attribute, for dead bands.
    """

    def __init__(self, programs, events, run, scales):
        self.table = programs
        self.ring = events
        self._run = run
        self._scales = scales
        self._aged = None
        self._goes = 0  # 1 once an event has the sample, 2 a critical one

    def observe(self, sample):
        """Examines one sample by all programs; how many events it made."""
        before = self.ring.next
        self._goes = 0
        if self._aged is not sample.aged:
            if self._aged is not None:
                self._restart_runs()
            self._aged = sample.aged
        at = self.table.first()
        while at:
            self._examine(at, sample)
            at = self.table.after(at)
        if self.ring.next > before:
            self.ring.end_sample()
        return self.ring.next - before

    def _restart_runs(self):
        """The clock was set: times before and after it do not compare."""
        at = self.table.first()
        while at:
            self.table.image[at + 2] &= ~table.RUN & 0xFF
            at = self.table.after(at)

    def _examine(self, at, sample):
        code = self.table.image
        program = at + table.ENTRY
        enter = program + HEADER + options_size(code[program + 13])
        leave = enter + code[program + 10]
        only = leave + code[program + 11]
        doubt = only + code[program + 12]
        size = doubt_size(code, program)
        if size and self._run(code, doubt, doubt + size, sample.values, sample.present):
            self._leave_open(at, sample)
            return
        if code[program + 12] and not self._run(code, only, doubt, sample.values, sample.present):
            goal = NOTHING
        elif not code[program + 1] & STATE:
            if self._run(code, enter, leave, sample.values, sample.present):
                self._tell(at, sample, 0)
            return
        else:
            goal = self._goal(code, at, enter, leave, only, sample)
            if goal == UNDECIDED:
                self._leave_open(at, sample)
                return
            if self._settle(at, goal, sample):
                self._set(at, goal, sample)
                return
        if code[program + 13] & HEARTBEAT:
            self._beat(at, sample)

    def _goal(self, code, at, enter, leave, only, sample):
        """What the sample would set the bit to; NOTHING where rule S1 suppresses it, UNDECIDED where S2 says so."""
        known = code[at + 2] & table.KNOWN
        bit = code[at + 2] & table.BIT
        falls = (bit or not known) and self._run(code, leave, only, sample.values, sample.present)
        if known and falls:
            return 0
        rises = not bit and self._run(code, enter, leave, sample.values, sample.present)
        if falls:
            return UNDECIDED if rises else 0
        return 1 if rises else NOTHING

    def _settle(self, at, goal, sample):
        """Whether debounce and dead band let the bit be set (rule S6)."""
        code = self.table.image
        options = code[at + table.ENTRY + 13]
        held = self._held(code, at, goal, sample) if options & DEBOUNCE else goal != NOTHING
        return held and (not options & DEAD_BAND or self._moved(code, at, sample))

    def _held(self, code, at, goal, sample):
        """Whether samples on end have asked for the goal for as long as debounce says, by sample time."""
        if goal == NOTHING:
            code[at + 2] &= ~table.RUN & 0xFF
            return False
        status = code[at + 2]
        if not status & table.RUN or bool(status & table.RUN_GOAL) != bool(goal):
            status &= ~table.RUN_GOAL & 0xFF
            code[at + 2] = status | table.RUN | (table.RUN_GOAL if goal else 0)
            pack_into("<I", code, at + 3, sample.time)
        debounce = number(code, option_at(code, at + table.ENTRY, DEBOUNCE), 4)
        return sample.time - unpack_from("<I", code, at + 3)[0] >= debounce

    def _moved(self, code, at, sample):
        """Whether the dead band's attribute is away from where it was when the bit last flipped."""
        if not code[at + 2] & table.FLIPPED:
            return True
        option = option_at(code, at + table.ENTRY, DEAD_BAND)
        index = code[option]
        if not sample.present >> index & 1:
            return False
        return has_moved(code, option, unpack_from("<i", code, at + 7)[0], sample.value(index), self._scales[index])

    def _set(self, at, goal, sample):
        """The bit is set, and the sample becomes its label."""
        code = self.table.image
        status = table.KNOWN | (table.BIT if goal else 0) | code[at + 2] & table.TOLD
        option = option_at(code, at + table.ENTRY, DEAD_BAND)
        if option and sample.present >> code[option] & 1:
            status |= table.FLIPPED
            pack_into("<i", code, at + 7, sample.value(code[option]))
        code[at + 2] = status
        self._tell(at, sample, ring.LABEL | (ring.BIT if goal else 0))

    def _leave_open(self, at, sample):
        """The sample goes to the owner, which decides; until then the bit is unknown."""
        self.table.image[at + 2] &= table.TOLD
        self._tell(at, sample, ring.UNKNOWN)

    def _beat(self, at, sample):
        """A presence, where nothing was said for as long as the heartbeat says."""
        code = self.table.image
        heartbeat = number(code, option_at(code, at + table.ENTRY, HEARTBEAT), 4)
        status = code[at + 2]
        if status & table.TOLD and 0 <= sample.time - unpack_from("<I", code, at + 11)[0] < heartbeat:
            return
        flags = ring.PRESENCE | (ring.BIT if status & table.BIT else 0)
        self._tell(at, sample, flags if status & table.KNOWN else flags | ring.UNKNOWN)

    def _tell(self, at, sample, flags):
        code = self.table.image
        program = at + table.ENTRY
        if code[program + 1] & CRITICAL:
            flags |= ring.CRITICAL
        if code[program + 1] & WEAKER:
            flags |= ring.WEAKER
        code[at + 2] |= table.TOLD
        pack_into("<I", code, at + 11, sample.time)
        goes = 0 if flags & ring.PRESENCE else 2 if flags & ring.CRITICAL else 1
        if flags & (ring.LABEL | ring.PRESENCE | ring.UNKNOWN) or goes > self._goes:
            self.ring.add(filter_id(code, program), number(code, program + 6, 4), sample, flags)
            self._goes = max(self._goes, goes)
