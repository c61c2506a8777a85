"""The main loop: sample, labels, events, advert; it feeds the watchdog, and sleeps when nothing is left to do."""

import struct

import spinney_boot

from . import ccm, kept, modes, wire
from .bindkey import PLACE_BYTES, BindKey
from .modes import Modes
from .programs import ProgramError
from .table import TableError

VERSION = "0.1.0"
MEASURE_LIMIT_MS = 10_000  # a sensor that takes longer is missing from this sample and may be in the next
SLEEPY_MEASURE_LIMIT_MS = 60_000  # with deep sleep there is no later: some sensors warm up for half a minute
LEAST_SLEEP_MS = 2000
UPDATE_IDLE_MS = 600_000  # an update of which nothing comes for so long is given up
REBOOT_DELAY_MS = 500  # so that the answer goes out
HEALTHY_MS = 30_000
BUSY_TURN_MS = 20  # while a central is connected
IDLE_TURN_MS = 200
START_AWAKE_MS = 3000  # after a start that is no wake: whoever stands beside it wants to connect
EVENT_AWAKE_MS = 3000  # for how long a mote that sleeps waits for somebody who wants the event that it made just now
SHOWS_IN_REACH = 4  # how often one that has nothing to tell is there within reach_s
_NEVER_MS = -(1 << 62)
_RADIO = "<qq"  # when the mode was renewed, when the radio was on last; then the place in the key's counters
_TABLE = "table"
_SAMPLING = "sampling"


class Life:
    """Everything that a mote does, one `turn` after the other. All parts are handed in.

    `labels` is a labels.Labels with its table and ring, `sensors` are sensor.Sensor. The radio comes after `begin`, and
    speaks for the mote through what gatt.py asks for.
    """

    version = VERSION

    def __init__(self, config, board, store, clock, sensors, sample, labels, ota):
        self.config = config
        self.board = board
        self.store = store
        self.clock = clock
        self.sensors = sensors
        self.sample = sample
        self.labels = labels
        self.table = labels.table
        self.ring = labels.ring
        self.ota = ota
        self.key = BindKey(store)
        self.modes = Modes(config, store, clock, self.key)
        self.radio = None
        self.name = config.name
        self.attributes = [attribute for sensor in sensors for attribute in sensor.attributes]
        self.boot_cause = board.cause
        self.free_heap = board.free_heap
        self.last_crash = ""
        self.is_woken = False  # this start is the end of a deep sleep, and the boot goes on
        self.late = 0  # samples that were not taken, since the mote was busy
        self.samples = 0  # since this start
        self.sampling = config.sampling
        self._interval_ms = config.sample_interval_s * 1000
        self._due_ms = 0
        self._ready_ms = 0
        self._is_measuring = False
        self._sampled_ms = 0
        self._stay_ms = 0  # for how long after a sample there is something to stay awake for
        self._has_news = False  # the last sample made an event
        self._shown_ms = _NEVER_MS  # when others could last hear of the mote
        self._started_ms = 0
        self._reboot_ms = -1
        self._update_ms = 0  # when the last part of an update came
        self._is_proven = False

    @property
    def errors(self) -> list:
        """What is wrong with the configuration and the sensors, in words."""
        return self.config.problems + [sensor.error for sensor in self.sensors if sensor.error]

    def begin(self) -> None:
        """A start: a new boot with all bits unknown, or the end of a deep sleep, after which the boot goes on."""
        self._load_table()
        state = self.store.kept()
        last_boot = kept.kept_boot(state)
        self.is_woken = self.board.woke and last_boot is not None
        if self.is_woken:
            self._wake_radio(kept.wake(state, self.clock, self.table, self.ring, self.sample))
        else:
            self.table.forget()
            self.sample.boot = kept.next_boot(self.store, last_boot)
            self.ring.restart(self.sample.boot)
            self.modes.begin()
            self._keep(0)
        sampling = self.store.get(_SAMPLING)
        if sampling is not None:
            self.sampling = sampling == b"\x01"
        self.last_crash = (self.store.get(spinney_boot.CRASH) or b"").decode()
        if self.config.advert_mode == "encrypted" and not self.key.key:
            self.config.complain("advert_mode: there is no key to encrypt with; the mote only says that it is there")
        if self.key.key and not ccm.is_there():
            self.key.is_spent = True
            self.config.complain("bind key: this board cannot encrypt; the mote only says that it is there")
        if self.config.deep_sleep and not self.store.keeps:
            self.config.complain("deep_sleep: this board keeps nothing through it; the mote stays awake")
        self._started_ms = self._due_ms = self.clock.advance()

    def switch_on(self, radio) -> None:
        """Starts the radio; that of a mote that wakes and may have nothing to tell only if a sample needs it.

        A mote that does not sample is there to be found, too.
        """
        self.radio = radio
        if not (self.is_woken and self.sleeps and self.sampling and self.modes.mode == modes.PRESENCE):
            radio.start()
        if not self.sampling:
            self._sampled_ms = self._shown_ms = self.clock.advance()
            is_moment = self.is_woken and self.modes.mode == modes.PRESENCE
            self._stay_ms = self.config.look_ms if is_moment else self.config.awake_ms
            radio.show(self.sample)

    def run(self, sleep_ms) -> None:
        """Never ends. `sleep_ms` is that of MicroPython's `time`."""
        while True:
            sleep_ms(self.turn())

    def turn(self) -> int:
        """Does what is due; returns for how many milliseconds there is nothing to do."""
        self.board.feed()
        now = self.clock.advance()
        self.modes.watch(now)
        more = self.radio is not None and self.radio.poll()
        self._measure(now)
        self._prove(now)
        if self.ota.is_open and now - self._update_ms >= UPDATE_IDLE_MS:
            self.ota.abort()
        if self._reboot_ms >= 0 and now >= self._reboot_ms:
            self._reboot_ms = -1
            self.board.reset()
        if self.may_sleep():
            self.sleep()
        return 1 if more else self._idle_ms(now)

    def set_sampling(self, on: bool) -> None:
        """Outlives a loss of power."""
        if on and not self.sampling:
            self._due_ms = self.clock.advance()
        self.sampling = on
        self.store.put(_SAMPLING, b"\x01" if on else b"\x00")

    def ask_reboot(self) -> None:
        """Restarts the board soon."""
        self._reboot_ms = self.clock.advance() + REBOOT_DELAY_MS

    def change(self, add, drop) -> None:
        """Changes the filter table for good; ValueError, and nothing changed, where that is not possible."""
        before = self.table.image
        if not self.table.change(add, drop):
            return
        try:
            self.store.put(_TABLE, self.table.image)
        except OSError as error:
            self.table.image = before
            raise ValueError("the flash takes no table: error %s" % error.args[0]) from None

    def control(self, op: int, payload):
        """What `control` is asked for and the radio does not do itself: a status and the bytes of the answer."""
        if op == wire.SAMPLING:
            self.set_sampling(payload[0] != 0)
        elif op == wire.REBOOT:
            self.ask_reboot()
        elif op == wire.OTA:
            self._update_ms = self.clock.advance()
            refused, answer = self.ota.control(payload)
            return (wire.REFUSED, refused.encode()) if refused else (wire.OK, answer)
        else:
            return wire.UNKNOWN_OP, b""
        return wire.OK, b""

    def battery(self) -> int:
        """Per cent; wire.NO_BATTERY where no sensor says."""
        for index, attribute in enumerate(self.attributes):
            if attribute.kind == "battery" and self.sample.present >> index & 1:
                return self.sample.value(index) * attribute.p // attribute.q
        return wire.NO_BATTERY

    @property
    def sleeps(self) -> bool:
        """Whether it sleeps between samples."""
        return self.config.deep_sleep and self.store.keeps

    def may_sleep(self) -> bool:
        """Whether deep sleep is wanted, possible, worth it, and nobody waits for the mote."""
        if not self.sleeps or self._is_measuring or (self.sampling and not self.samples):
            return False
        if self.ota.is_open or self._reboot_ms >= 0 or (self.radio is not None and self.radio.busy):
            return False
        now = self.clock.advance()
        is_told = self._has_news and self.ring.first == self.ring.next  # somebody came for the event, and went
        return (is_told or now - self._sampled_ms >= self._stay_ms) and self._wake_ms() - now >= LEAST_SLEEP_MS

    def _wake_ms(self) -> int:
        """When the next sample is due; without sampling, when the mote is to be found again."""
        if self.sampling:
            return self._due_ms
        return self.clock.advance() + self.config.reach_s * 1000 // SHOWS_IN_REACH

    def sleep(self) -> None:
        """Keeps what must be kept and sleeps until there is something to do. A start follows."""
        self._prove_now()
        ms = self._wake_ms() - self.clock.advance()
        if self._keep(ms):
            if self.radio is not None:
                self.radio.stop()
            self.board.deep_sleep(ms)

    def _load_table(self) -> None:
        image = self.store.get(_TABLE)
        if image is not None:
            try:
                self.table.load(image)
            except (TableError, ProgramError) as error:
                self.config.complain("filter table: %s; it is empty" % error)

    def _keep(self, slept_ms: int) -> bool:
        room = self.board.rtc_bytes - self.store.frame_bytes
        renewed_ms = self.modes.renewed_ms
        radio = struct.pack(_RADIO, _NEVER_MS if renewed_ms is None else renewed_ms, self._shown_ms) + self.key.place()
        return kept.keep(self.store, self.clock, self.table, self.ring, self.sample, radio, slept_ms, room)

    def _wake_radio(self, state) -> None:
        renewed_ms, self._shown_ms = struct.unpack(_RADIO, state[:-PLACE_BYTES])
        self.modes.begin(None if renewed_ms == _NEVER_MS else renewed_ms)
        self.key.wake(state[-PLACE_BYTES:])

    def _measure(self, now: int) -> None:
        if self._is_measuring:
            if now >= self._ready_ms:
                self._finish_sample(now)
        elif self.sampling and now >= self._due_ms:
            self._begin_sample(now)

    def _begin_sample(self, now: int) -> None:
        late = (now - self._due_ms) // self._interval_ms
        self.late += late
        self._due_ms += (late + 1) * self._interval_ms
        wait_ms = 0
        for sensor in self.sensors:
            wait_ms = max(wait_ms, sensor.start())
        self._ready_ms = now + min(wait_ms, SLEEPY_MEASURE_LIMIT_MS if self.sleeps else MEASURE_LIMIT_MS)
        self._is_measuring = True
        if not wait_ms:
            self._finish_sample(now)

    def _finish_sample(self, now: int) -> None:
        """One numbered sample of all sensors. Its time is the boot's; Events makes it the epoch's when it is sent."""
        sample = self.sample
        sample.begin(now // 1000, True)
        index = 0
        for sensor in self.sensors:
            for value in sensor.finish():
                if value is not None:
                    sample.put(index, value)
                index += 1
        self._is_measuring = False
        self._sampled_ms = now
        self.samples += 1
        news = self.labels.observe(sample)
        self._stay_ms = self._stay(now, news)
        self._has_news = news > 0 and self.is_woken
        if self._stay_ms and self.radio is not None:
            self._shown_ms = now
            self.radio.show(sample)

    def _stay(self, now: int, news: int) -> int:
        """For how long this sample is worth having the radio on, if the mote sleeps; 0: not at all."""
        config = self.config
        if not self.is_woken and self.samples == 1:
            return max(config.awake_ms, START_AWAKE_MS)
        if not self.sleeps or self.modes.mode != modes.PRESENCE:
            return config.awake_ms
        if news:
            return max(config.awake_ms, EVENT_AWAKE_MS)
        is_due = now + self._interval_ms - self._shown_ms > config.reach_s * 1000 // SHOWS_IN_REACH
        return config.look_ms if is_due or self.ring.first < self.ring.next else 0

    def _prove(self, now: int) -> None:
        if now - self._started_ms >= HEALTHY_MS:
            self._prove_now()

    def _prove_now(self) -> None:
        """A start that sampled, advertised and went on for a while is healthy: its set of library files is kept."""
        if not self._is_proven and (self.samples or not self.sampling):
            self._is_proven = True
            self.ota.healthy()

    def _idle_ms(self, now: int) -> int:
        idle_ms = BUSY_TURN_MS if self.radio is not None and self.radio.busy else IDLE_TURN_MS
        if self._is_measuring:
            idle_ms = min(idle_ms, self._ready_ms - now)
        elif self.sampling:
            idle_ms = min(idle_ms, self._due_ms - now)
        left_ms = self._sampled_ms + self._stay_ms - now
        if left_ms > 0 and self.sleeps:
            idle_ms = min(idle_ms, left_ms)
        return max(idle_ms, 1)
