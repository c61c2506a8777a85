"""What a mote advertises: who sets the mode, when it falls back, the key's counters, and when the radio stays off."""

from __future__ import annotations

import contextlib
import itertools
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mote_world import PWRON, READINGS, WATCHDOG, World
from spinney_boot import Files
from spinney_mote import bindkey, modes, owner, wire
from spinney_mote.bindkey import BindKey
from spinney_mote.life import EVENT_AWAKE_MS, Life
from spinney_mote.store import Store
from test_life import HOT, program

from spinney.mote.adverts import AdvertState, Bits, Mode

HOUR = 3_600_000
SLEEPY = {"deep_sleep": True, "sample_interval_s": 60}


def ask(life: Life, *write: int) -> tuple[int, AdvertState | str]:
    status, answer = owner.adverts(life, struct.pack(wire.ADVERTS_WRITE, *write) if write else b"")
    return status, AdvertState.decode(bytes(answer)) if status == wire.OK else bytes(answer).decode()


def own(life: Life, mode: int = modes.PRESENCE, after: int = modes.AS_CONFIGURED) -> AdvertState:
    status, state = ask(life, mode, after, life.table.crc)
    assert isinstance(state, AdvertState), (status, state)
    return state


def later(world: World, life: Life, hours: float) -> None:
    """So much time without a visit; the watchdog is not looked at."""
    for _ in range(round(hours * 60)):
        world.ms += HOUR // 60
        life.turn()


def test_a_mote_is_open_until_a_broker_says_otherwise_and_that_outlives_a_loss_of_power(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = world.start()
    assert life.modes.mode == modes.OPEN
    state = ask(life)[1]
    assert state == AdvertState(Mode.OPEN, Mode.OPEN, Bits(0), 21600, None)
    state = own(life)
    assert (state.mode, state.since_renewed, state.open_after) == (Mode.PRESENCE, 0, 21600)
    life = world.start(PWRON)
    assert life.modes.mode == modes.PRESENCE
    assert own(life, modes.OPEN).mode == Mode.OPEN
    assert world.start(PWRON).modes.mode == modes.OPEN


def test_renewing_writes_no_flash(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = world.start()
    own(life)
    before = world.files.writes
    for _ in range(100):
        later(world, life, 1)
        own(life)
    assert world.files.writes == before
    assert life.modes.mode == modes.PRESENCE


def test_the_mode_comes_after_the_table_it_is_meant_for(tmp_path: Path) -> None:
    life = World(tmp_path).start()
    life.change([program(HOT)], [])
    assert ask(life, modes.PRESENCE, 0, 0) == (wire.REFUSED, "the filter table is another one")
    assert life.modes.mode == modes.OPEN
    assert own(life).mode == Mode.PRESENCE
    assert owner.adverts(life, b"\x02")[0] == wire.MALFORMED


@pytest.mark.parametrize("mode", ["open", "encrypted", "presence"])
def test_a_mode_of_mote_toml_is_overridden_by_nobody(tmp_path: Path, mode: str) -> None:
    world = World(tmp_path)
    own(world.start())
    world.settings["advert_mode"] = mode
    life = world.start()
    life.key.renew()
    for wanted in modes.OPEN, modes.ENCRYPTED, modes.PRESENCE:
        status, words = ask(life, wanted, 0, life.table.crc)
        assert (status, words) == (wire.REFUSED, "advert_mode is set in mote.toml")
    later(world, life, 100)
    assert modes.NAMES[life.modes.mode] == mode
    state = ask(life)[1]
    assert isinstance(state, AdvertState)
    assert Bits.FIXED in state.bits


def test_an_unknown_mode_counts_as_open(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = world.start()
    own(life)
    assert own(life, 3).mode == Mode.OPEN
    life.store.put(modes.NAME, struct.pack("<BBI", 200, 0, 0))  # by a later version
    assert world.start().modes.mode == modes.OPEN
    assert AdvertState.decode(struct.pack(modes.STATE, 9, 9, 0, 0, 0, 0)).mode == Mode.OPEN


# ---- the fallback


@pytest.mark.parametrize(
    ("settings", "has_key", "expected"),
    [
        ({}, True, modes.ENCRYPTED),
        ({}, False, modes.PRESENCE),
        ({"fallback": "open"}, True, modes.OPEN),
        ({"fallback": "open"}, False, modes.OPEN),
        ({"fallback": "presence"}, True, modes.PRESENCE),
        ({"open_after": 0, "fallback": "open"}, True, modes.PRESENCE),
    ],
)
def test_without_a_visit_for_six_hours_it_falls_back(
    tmp_path: Path, settings: dict[str, Any], has_key: bool, expected: int
) -> None:
    world = World(tmp_path, **settings)
    life = world.start()
    if has_key:
        life.key.renew()
    own(life)
    later(world, life, 5.9)
    assert life.modes.mode == modes.PRESENCE
    later(world, life, 0.2)
    assert life.modes.mode == expected
    assert world.start(PWRON).modes.mode == expected, "also after a loss of power"
    assert own(world.start()).mode == Mode.PRESENCE, "the next visit ends it"


def test_the_broker_may_say_after_how_long(tmp_path: Path) -> None:
    world = World(tmp_path, fallback="open")
    life = world.start()
    assert own(life, after=60).open_after == 60
    later(world, life, 0.1)
    assert life.modes.mode == modes.OPEN
    own(life, after=0)
    later(world, life, 100)
    assert life.modes.mode == modes.PRESENCE
    own(life, modes.OPEN, 60)
    later(world, life, 1)
    assert life.modes.mode == modes.OPEN, "what a broker opened does not close by itself"


def test_time_without_a_visit_goes_on_through_resets_but_for_a_quarter(tmp_path: Path) -> None:
    world = World(tmp_path, fallback="open")
    life = world.start()
    own(life)
    hours = 0.0
    while life.modes.mode == modes.PRESENCE:
        life = world.start(WATCHDOG)
        later(world, life, 2)  # it never goes on for longer
        hours += 2
        assert hours < 20
    assert hours == 8


def test_time_without_a_visit_goes_on_through_deep_sleep(tmp_path: Path) -> None:
    world = World(tmp_path, fallback="open", **SLEEPY)
    life = world.start()
    own(life)
    sleeps = 0
    while life.modes.mode == modes.PRESENCE and sleeps < 400:
        world.run(life, 10_000)
        life = world.wake()
        sleeps += 1
    assert sleeps in (360, 361)


# ---- the key and its counters


def test_no_counter_comes_twice_whatever_is_lost(tmp_path: Path) -> None:
    """Power fails between any two steps of a write, sleeps keep the place, and what RTC memory held may be old."""
    chance = random.Random(13)
    folder = tmp_path / "state"
    key = BindKey(Store(Files(str(folder))))
    key.renew()
    used: dict[bytes, set[int]] = {}
    places = [key.place()]
    for _ in range(150):
        for _ in range(chance.choice((1, 5, 3000))):
            counter = key.take()
            assert counter is not None
            seen = used.setdefault(key.key, set())
            assert counter not in seen
            seen.add(counter)
        fate = chance.randrange(4)
        place = key.place()
        if fate == 0:
            key.renew()
        elif fate == 1:
            cut = _Cut(str(folder), chance.randrange(3))
            key._store = Store(cut)
            with contextlib.suppress(_PowerCutError):
                while (counter := key.take()) is not None:
                    assert counter not in used[key.key]
                    used[key.key].add(counter)
        if fate != 0:
            key = BindKey(Store(Files(str(folder))))
            if fate == 2:
                key.wake(place)
            elif fate == 3 and chance.random() < 0.5:
                key.wake(b"\x00" * 8)
        places.append(place)
    assert sum(map(len, used.values())) > 40_000


class _PowerCutError(Exception):
    pass


class _Cut(Files):
    """Loses power at one of the steps of the next write."""

    def __init__(self, folder: str, step: int) -> None:
        super().__init__(folder)
        self._step = step

    def write(self, name: str, data: bytes) -> None:
        if self._step == 0:
            super().write(name, data[: len(data) // 2])
            raise _PowerCutError
        super().write(name, data)
        if self._step == 1:
            raise _PowerCutError

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if self._step == 2:
            raise _PowerCutError


def test_a_place_of_another_key_or_of_a_block_that_is_gone_is_not_believed(tmp_path: Path) -> None:
    store = Store(Files(str(tmp_path / "state")))
    key = BindKey(store)
    key.renew()
    assert [key.take() for _ in range(3)] == [0, 1, 2]
    place = key.place()
    again = BindKey(store)
    again.wake(place)
    assert again.take() == 3
    lost = BindKey(store)
    assert lost.take() == bindkey.RESERVED, "after a loss of power the rest of the block is left out"
    assert lost.take() == bindkey.RESERVED + 1
    late = BindKey(store)
    late.wake(place)
    assert late.take() == 2 * bindkey.RESERVED, "the place is of a block before"
    key.renew()
    other = BindKey(store)
    other.wake(place)
    assert other.take() == 0


def test_a_counter_that_is_lost_or_has_come_to_its_end_means_presence_until_there_is_a_new_key(tmp_path: Path) -> None:
    world = World(tmp_path, advert_mode="encrypted")
    life = world.start()
    assert life.modes.mode == modes.PRESENCE, "there is no key"
    assert life.errors == ["advert_mode: there is no key to encrypt with; the mote only says that it is there"]
    life.key.renew()
    assert life.modes.mode == modes.ENCRYPTED
    (tmp_path / "state" / bindkey.NAME).write_bytes(b"damaged")
    life = world.start()
    assert (life.key.take(), life.modes.mode) == (None, modes.PRESENCE)
    life.key.renew()
    life.store.put(bindkey.NAME, struct.pack("<16sI", life.key.key, bindkey.MOST - 10))
    life = world.start()
    assert (life.key.take(), life.modes.mode) == (None, modes.PRESENCE)
    state = ask(life)[1]
    assert isinstance(state, AdvertState)
    assert Bits.KEY_SPENT | Bits.HAS_KEY in state.bits
    assert owner.bind_key(life.key, wire.KEY_NEW, True)[0] == wire.OK
    assert (life.key.take(), life.modes.mode) == (0, modes.ENCRYPTED)


def test_a_flash_that_takes_nothing_ends_encryption_not_the_mote(tmp_path: Path) -> None:
    world = World(tmp_path, advert_mode="encrypted")
    life = world.start()
    life.key.renew()
    life.key._store = _Full()
    assert (life.key.take(), life.modes.mode) == (None, modes.PRESENCE)
    assert owner.bind_key(life.key, wire.KEY_NEW, True)[0] == wire.REFUSED


class _Full:
    def put(self, _name: str, _data: bytes) -> None:
        raise OSError(28)


def test_a_key_is_for_who_typed_the_passkey(tmp_path: Path) -> None:
    life = World(tmp_path).start()
    for what in wire.KEY_READ, wire.KEY_NEW, wire.KEY_FORGET, 3:
        assert owner.bind_key(life.key, what, False) == (wire.NOT_ALLOWED, b"")
    assert owner.bind_key(life.key, wire.KEY_READ, True) == (wire.OK, b"")
    status, key = owner.bind_key(life.key, wire.KEY_NEW, True)
    assert (status, len(key)) == (wire.OK, 16)
    assert owner.bind_key(life.key, wire.KEY_READ, True) == (wire.OK, key)
    assert World(tmp_path).start().key.key == key
    assert owner.bind_key(life.key, wire.KEY_FORGET, True) == (wire.OK, b"")
    assert World(tmp_path).start().key.key == b""
    assert owner.bind_key(life.key, 3, True)[0] == wire.MALFORMED


# ---- the radio of a mote that sleeps


class Day:
    """Wakes a mote again and again, and writes down for how long it was awake, and whether its radio was on."""

    def __init__(self, world: World, life: Life) -> None:
        self.world = world
        self.life = life
        self.awake: list[tuple[int, bool]] = []

    def wakes(self, count: int, value: Callable[[int], int] = lambda _: 2000) -> list[tuple[int, bool]]:
        self.awake = []
        for number in range(count):
            READINGS["value"] = value(number)
            self.life = self.world.wake()
            begin = self.world.ms
            self.world.run(self.life, 30_000)
            self.awake.append((self.world.ms - begin, self.world.radio.is_on or bool(self.world.radio.shown)))
            self.life.ring.ack(self.life.ring.next - 1)
            self.life._keep(self.world.slept[-1])
        return self.awake


def day(tmp_path: Path, mode: int = modes.PRESENCE, **settings: Any) -> Day:
    world = World(tmp_path, **{**SLEEPY, **settings})
    life = world.start()
    life.change([program(HOT)], [])
    own(life, mode)
    world.run(life, 30_000)
    assert len(world.slept) == 1
    life.ring.ack(life.ring.next - 1)
    life._keep(world.slept[-1])
    return Day(world, life)


def test_an_open_mote_is_on_the_air_for_a_second_after_each_sample(tmp_path: Path) -> None:
    assert day(tmp_path, modes.OPEN).wakes(5) == [(1000, True)] * 5


def test_a_mote_with_nothing_to_tell_is_there_for_a_moment(tmp_path: Path) -> None:
    assert day(tmp_path).wakes(5) == [(200, True)] * 5


def test_it_leaves_the_radio_off_at_samples_in_between(tmp_path: Path) -> None:
    found = day(tmp_path, sample_interval_s=10).wakes(30)
    assert [radio for _, radio in found].count(True) in (4, 5)
    assert {ms for ms, radio in found if not radio} == {0}
    gaps = [index for index, (_, radio) in enumerate(found) if radio]
    assert {later - earlier for earlier, later in itertools.pairwise(gaps)} == {7}, "at most 75 s"


def test_an_event_is_told_at_once_whether_the_radio_was_due_or_not(tmp_path: Path) -> None:
    found = day(tmp_path, sample_interval_s=10).wakes(20, lambda number: 3000 if number == 9 else 2400)
    assert found[9] == (EVENT_AWAKE_MS, True)
    assert [ms for ms, _ in found].count(EVENT_AWAKE_MS) == 1


def test_it_sleeps_as_soon_as_its_event_is_told(tmp_path: Path) -> None:
    quick = day(tmp_path)
    READINGS["value"] = 3000
    quick.life = quick.world.wake()
    begin = quick.world.ms
    quick.world.run(quick.life, 400)
    quick.world.radio.busy = True  # somebody comes
    quick.world.run(quick.life, 300)
    quick.life.ring.ack(quick.life.ring.next - 1)
    quick.world.run(quick.life, 300)
    assert len(quick.world.slept) == 1, "not while somebody is connected"
    quick.world.radio.busy = False
    quick.world.run(quick.life, 10_000)
    assert len(quick.world.slept) == 2
    assert quick.world.ms - begin <= 1000


def test_it_is_there_at_each_sample_while_an_event_waits(tmp_path: Path) -> None:
    lonely = day(tmp_path, sample_interval_s=10)
    lonely.life.ring.add(1, 1, lonely.life.sample, 2)
    lonely.life._keep(lonely.world.slept[-1])
    found = []
    for _ in range(5):
        lonely.life = lonely.world.wake()
        begin = lonely.world.ms
        lonely.world.run(lonely.life, 30_000)
        found.append(lonely.world.ms - begin)
    assert found == [200] * 5


@pytest.mark.parametrize(("mode", "awake_ms"), [(modes.OPEN, 1000), (modes.PRESENCE, 200)])
def test_a_mote_that_does_not_sample_sleeps_and_is_found_four_times_in_reach(
    tmp_path: Path, mode: int, awake_ms: int
) -> None:
    found = day(tmp_path, mode)
    found.life = found.world.wake()
    found.life.set_sampling(False)
    found.world.run(found.life, 30_000)
    assert found.world.slept[-1] == 75_000
    assert found.wakes(3) == [(awake_ms, True)] * 3
    assert found.world.slept[-3:] == [75_000] * 3
    assert found.world.radio.shown == [found.life.sample.sequence], "nothing was measured"
    found.life = found.world.wake()
    found.life.set_sampling(True)
    found.world.run(found.life, 30_000)
    assert found.world.slept[-1] <= 60_000


def test_after_a_start_its_radio_is_on_at_once(tmp_path: Path) -> None:
    awake = day(tmp_path)
    life = awake.world.start(PWRON)
    assert awake.world.radio.is_on
    awake.world.run(life, 30_000)
    assert awake.world.radio.shown == [1]
