"""The mote's main loop: samples on time, sleep when allowed, what goes through sleep and reboot, the watchdog."""

from __future__ import annotations

import errno
import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mote_world import DEEPSLEEP, PWRON, READINGS, WATCHDOG, NoRtcWorld, World
from spinney_boot import Pointer, read_pointer, write_pointer
from spinney_mote import kept, wire
from spinney_mote.life import HEALTHY_MS, REBOOT_DELAY_MS, UPDATE_IDLE_MS, VERSION, Life
from spinney_mote.ota import BEGIN

from spinney import mote as host
from spinney import parse
from spinney.known import Known
from spinney.mote import Attribute, Compiled, Delivery
from spinney.mote.protocol import Event

TEMPERATURE = Attribute("temperature", 1, 100, -4000, 8500)
SLEEPY = {"deep_sleep": True, "sample_interval_s": 60, "awake_ms": 3000}


def program(text: str, number: int = 7, **options: Any) -> bytes:
    subscription = replace(parse(text), **options)
    compiled = host.compile(subscription, Known({}), [TEMPERATURE], Delivery(number, 1))
    assert isinstance(compiled, Compiled)
    return compiled.program


def events(life: Life) -> list[Event]:
    uptime = life.clock.advance() // 1000
    return [Event.decode(bytes(life.ring.read(n, uptime))) for n in range(life.ring.first, life.ring.next)]


HOT = "WHEN temperature > 25 UNTIL temperature <= 22"


# ---- samples


def test_a_sample_in_each_interval_numbered_and_advertised(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=10)
    life = world.start()
    world.run(life, 35_000)
    assert world.radio.shown == [1, 2, 3, 4]
    assert life.sample.boot == 1
    assert life.sample.time == 30
    assert life.late == 0


def test_an_interval_that_was_missed_is_counted_and_not_made_up_for(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=10)
    life = world.start()
    life.turn()
    world.ms += 35_000
    life.turn()
    world.run(life, 6_000)
    assert world.radio.shown == [1, 2, 3]
    assert life.late == 2


def test_a_slow_sensor_does_not_stop_the_loop(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=10)
    READINGS["wait_ms"] = 5000
    life = world.start()
    world.run(life, 4900)
    assert world.radio.shown == []
    assert world.radio.polls >= 20
    world.run(life, 200)
    assert world.radio.shown == [1]
    assert life.sample.present == 1


def test_a_sensor_that_takes_too_long_is_missing_and_ready_for_a_later_sample(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=20)
    READINGS["wait_ms"] = 25_000
    life = world.start()
    world.run(life, 10_100)
    assert world.radio.shown == [1]
    assert life.sample.present == 0
    assert "ready in" in life.errors[0]
    world.run(life, 16_000)
    assert life.sample.present == 1


def test_a_failing_sensor_is_missing_with_its_error(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=10)
    READINGS["value"] = OSError(errno.ENODEV)
    life = world.start()
    world.run(life, 100)
    assert life.sample.sequence == 1
    assert life.sample.present == 0
    assert life.errors == ["scripted: no answer"]


def test_a_driver_that_is_not_there_is_told_and_the_others_sample(tmp_path: Path) -> None:
    world = World(tmp_path, sensors=[{"driver": "nothere"}, {"driver": "scripted"}, {"driver": "scripted", "x": 1}])
    life = world.start()
    world.run(life, 100)
    assert life.sample.present == 1
    assert [problem.split(":")[0] for problem in life.config.problems] == ["sensor nothere", "sensor scripted"]


def test_equal_names_are_numbered_and_reserved_ones_refused(tmp_path: Path) -> None:
    sensors = [{"driver": "scripted"}, {"driver": "scripted"}, {"driver": "scripted", "names": ["lat"]}]
    life = World(tmp_path, sensors=sensors).start()
    assert [attribute.name for attribute in life.attributes] == ["temperature", "temperature_2"]
    assert life.config.problems == ["sensor scripted: lat is reserved; it is left out"]


def test_sampling_off_and_on_outlives_a_loss_of_power(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=10)
    life = world.start()
    world.run(life, 15_000)
    assert life.control(wire.SAMPLING, b"\x00") == (wire.OK, b"")
    world.run(life, 60_000)
    assert world.radio.shown == [1, 2]
    life = world.start(PWRON)
    world.run(life, 60_000)
    assert world.radio.shown == [0]  # no sample, but it is there to be found
    life.control(wire.SAMPLING, b"\x01")
    world.run(life, 5_000)
    assert world.radio.shown == [0, 1]


def test_the_battery_is_in_per_cent_where_a_sensor_says(tmp_path: Path) -> None:
    world = World(tmp_path, sensors=[{"driver": "scripted"}, {"driver": "charge"}])
    life = world.start()
    assert life.battery() == wire.NO_BATTERY
    READINGS["battery"] = 83
    world.run(life, 100)
    assert life.battery() == 83


# ---- labels and the table


def test_labels_follow_the_filter_and_carry_boot_and_sequence(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=10)
    life = world.start()
    life.change([program(HOT)], [])
    for value in (2400, 2600, 2700, 2300, 2100):
        READINGS["value"] = value
        world.run(life, 10_000)
    found = events(life)
    assert [(event.sequence, event.bit, event.values[0]) for event in found] == [(2, True, 2600), (5, False, 2100)]
    assert {event.boot for event in found} == {1}


def test_a_change_of_the_table_is_one_write_and_is_there_after_a_loss_of_power(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = world.start()
    before = life.store.flash_writes
    life.change([program(HOT)], [])
    assert life.store.flash_writes == before + 2
    life.change([program(HOT)], [])
    assert life.store.flash_writes == before + 2
    assert len(world.start(PWRON).table) == 1


def test_bits_that_were_written_with_a_change_are_unknown_after_a_loss_of_power(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=10)
    life = world.start()
    life.change([program(HOT)], [])
    READINGS["value"] = 2600
    world.run(life, 10_000)
    life.change([program(HOT, 8)], [])  # the first filter's bit is known by now
    world.run(life, 10_000)
    life = world.start(PWRON)
    world.run(life, 5_000)
    assert [(event.filter_id, event.sequence, event.bit) for event in events(life)] == [(7, 1, True), (8, 1, True)]


def test_a_flash_that_is_full_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = world.start()
    life.change([program(HOT)], [])
    crc = life.table.crc
    life.store._files.write = full  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="the flash takes no table: error 28"):
        life.change([program(HOT, 8)], [])
    assert life.table.crc == crc


def full(name: str, data: bytes) -> None:
    raise OSError(errno.ENOSPC, name, data)


def test_a_damaged_table_is_told_and_the_mote_runs_without(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = world.start()
    life.change([program(HOT)], [])
    life.store.put("table", b"no table")
    life = world.start()
    assert len(life.table) == 0
    assert "filter table: not a whole table" in life.errors[0]


# ---- time


def test_events_say_how_old_they_are_until_the_clock_is_set_and_then_when_they_were(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=10)
    life = world.start()
    life.change([program("temperature > 0")], [])
    world.run(life, 100)
    world.ms += 60_000
    (event,) = events(life)
    assert event.time == 60
    assert event.flags & event.flags.AGE
    life.clock.set(1_790_000_060_500)
    (event,) = events(life)
    assert event.time == 1_790_000_000
    assert not event.flags & event.flags.AGE


@pytest.mark.parametrize("epoch_ms", [1, 2**32 * 1000 + 60_000, 2**43 - 1])
def test_a_time_that_cannot_be_leaves_events_with_their_age(tmp_path: Path, epoch_ms: int) -> None:
    world = World(tmp_path, sample_interval_s=60)
    life = world.start()
    life.change([program(HOT)], [])
    world.run(life, 60_500)
    life.clock.set(epoch_ms)
    assert all(event.flags & event.flags.AGE for event in events(life))
    assert len(events(life)) == 1


def test_setting_the_clock_ends_no_debounce(tmp_path: Path) -> None:
    world = World(tmp_path, sample_interval_s=10)
    life = world.start()
    life.change([program(HOT, debounce=60.0)], [])
    READINGS["value"] = 2600
    for step in range(8):
        world.run(life, 10_000)
        life.clock.set(1_790_000_000_000 + step * 3_600_000)
    assert [event.sequence for event in events(life)] == [7]


# ---- deep sleep


def test_it_sleeps_between_samples_and_goes_on_with_the_same_boot(tmp_path: Path) -> None:
    world = World(tmp_path, **SLEEPY)
    life = world.start()
    life.change([program(HOT)], [])
    READINGS["value"] = 2600
    life.clock.set(1_790_000_000_000)
    for cycle in range(1, 51):
        writes = life.store.flash_writes
        world.run(life, 60_000)
        assert life.store.flash_writes == writes
        assert len(world.slept) == cycle
        assert not world.radio.is_on
        assert life.sample.sequence == cycle
        assert world.ms + world.slept[-1] == cycle * 60_000  # until the next sample is due
        life = world.wake()
        assert life.is_woken
        assert life.store.flash_writes == 0
    assert life.sample.boot == 1
    found = events(life)
    assert [(event.sequence, event.bit) for event in found] == [(1, True)]
    assert life.clock.epoch_ms() == 1_790_000_000_000 + world.ms


def test_bits_go_through_deep_sleep_and_are_unknown_after_a_reboot(tmp_path: Path) -> None:
    world = World(tmp_path, **SLEEPY)
    life = world.start()
    life.change([program(HOT)], [])
    READINGS["value"] = 2600
    world.run(life, 60_000)
    life = world.wake()
    world.run(life, 60_000)
    assert [event.bit for event in events(life)] == [True]  # known: not told again
    life = world.start(WATCHDOG)
    world.run(life, 1000)
    found = events(life)
    assert [(event.boot, event.sequence, event.bit) for event in found] == [(2, 1, True)]


@pytest.mark.parametrize("case", ["off", "busy", "measuring", "update", "reboot", "due soon", "awake"])
def test_it_stays_awake_while(tmp_path: Path, case: str) -> None:
    world = World(tmp_path, **{**SLEEPY, "deep_sleep": case != "off"})
    life = world.start()
    world.run(life, 2000)
    assert not life.may_sleep()
    world.ms += 55_500 if case == "due soon" else 500 if case == "awake" else 2000
    if case == "due soon":
        world.ms += 1000
    if case == "busy":
        world.radio.busy = True
    elif case == "update":
        life.control(wire.OTA, bytes([BEGIN, 0, 16, 0, 0]))
        assert life.ota.is_open
    elif case == "reboot":
        life.ask_reboot()
    elif case == "measuring":
        READINGS["wait_ms"] = 8000
        world.ms += 56_000
        life.turn()
        world.ms += 3500
    assert not life.may_sleep()


def test_a_mote_that_sleeps_waits_for_a_sensor_to_warm_up(tmp_path: Path) -> None:
    world = World(tmp_path, **SLEEPY)
    READINGS["wait_ms"] = 30_000
    life = world.start()
    world.run(life, 60_000)
    assert life.sample.present == 1
    assert len(world.slept) == 1


def test_an_update_that_nothing_comes_of_is_given_up(tmp_path: Path) -> None:
    world = World(tmp_path, **SLEEPY)
    life = world.start()
    life.control(wire.OTA, bytes([BEGIN, 0, 16, 0, 0]))
    world.run(life, UPDATE_IDLE_MS - 1000)
    assert life.ota.is_open
    assert world.slept == []
    world.run(life, 60_000)
    assert not life.ota.is_open
    assert len(world.slept) == 1


def test_it_sleeps_when_all_is_done(tmp_path: Path) -> None:
    world = World(tmp_path, **SLEEPY)
    life = world.start()
    world.run(life, 2000)
    world.ms += 2000
    assert life.may_sleep()


def test_a_board_that_keeps_nothing_stays_awake_and_says_so(tmp_path: Path) -> None:
    world = NoRtcWorld(tmp_path, **SLEEPY)
    life = world.start()
    world.run(life, 200_000)
    assert world.slept == []
    assert world.radio.shown == [1, 2, 3, 4]
    assert "stays awake" in life.errors[0]


def test_events_that_rtc_memory_cannot_hold_are_dropped_oldest_first_and_counted(tmp_path: Path) -> None:
    world = World(tmp_path, deep_sleep=True, sample_interval_s=5, awake_ms=200)
    life = world.start()
    life.change([program("temperature > 0")], [])
    world.run(life, 3100)
    for _ in range(100):
        life = world.wake()
        world.run(life, 3000)
    life = world.wake()
    found = events(life)
    assert 40 <= len(found) < 101
    assert [event.sequence for event in found] == list(range(102 - len(found), 102))
    assert life.ring.dropped == 101 - len(found)
    assert found[0].number == life.ring.first


def test_statuses_of_128_filters_go_through_deep_sleep(tmp_path: Path) -> None:
    world = World(tmp_path, **SLEEPY, table_bytes=16384)
    life = world.start()
    life.change([program(HOT, number) for number in range(128)], [])
    READINGS["value"] = 2600
    life.ring.ack(life.ring.next)
    world.run(life, 60_000)
    life.ring.ack(life.ring.next - 1)
    image = bytes(life.table.image)
    life = world.wake()
    assert bytes(life.table.image) == image
    dropped = life.ring.dropped
    world.run(life, 1000)
    assert life.sample.sequence == 2
    assert life.ring.dropped == dropped
    assert all(event.sequence == 1 for event in events(life))


def test_bits_are_unknown_when_the_table_is_another_after_the_sleep(tmp_path: Path) -> None:
    world = World(tmp_path, **SLEEPY)
    life = world.start()
    life.change([program(HOT)], [])
    READINGS["value"] = 2600
    world.run(life, 60_000)
    rtc = world.rtc
    other = world.start(WATCHDOG)  # changed, but by a start that did not sleep
    other.change([program("WHEN temperature > 20 UNTIL temperature <= 19")], [])
    world.rtc = rtc
    life = world.start(DEEPSLEEP)
    at = life.table.first()
    assert life.table.image[at + 2] == 0


def test_a_state_of_another_version_is_a_new_boot(tmp_path: Path) -> None:
    world = World(tmp_path, **SLEEPY)
    life = world.start()
    world.run(life, 60_000)
    state = life.store.kept()
    life.store.keep(b"\x63" + state[1:])
    assert world.start(DEEPSLEEP).sample.boot == 1 + kept.BOOTS_RESERVED


# ---- boots


def test_no_boot_number_is_given_twice_and_flash_is_written_once_in_many(tmp_path: Path) -> None:
    world = World(tmp_path)
    chance = random.Random(1)
    boots = []
    writes = 0
    for _ in range(200):
        life = world.start(PWRON if chance.random() < 0.05 else WATCHDOG)
        boots.append(life.sample.boot)
        writes += life.store.flash_writes
    assert boots == sorted(set(boots))
    losses = sum(later - earlier > 1 for earlier, later in itertools.pairwise(boots))
    assert writes <= 1 + 2 * (200 // kept.BOOTS_RESERVED + losses + 2)


def test_event_numbers_of_a_new_boot_are_above_the_last_ones(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = world.start()
    life.change([program("temperature > 0")], [])
    world.run(life, 1_000_000)
    last = life.ring.next
    life = world.start(PWRON)
    assert life.ring.first > last
    life.ring.ack(last)
    world.run(life, 1000)
    assert len(events(life)) == 1


def test_an_asked_reboot_waits_until_its_answer_is_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = world.start()
    assert life.control(wire.REBOOT, b"") == (wire.OK, b"")
    world.run(life, REBOOT_DELAY_MS - 100)
    assert world.resets == 0
    world.run(life, 300)
    assert world.resets == 1


# ---- watchdog and health


def test_only_turns_feed_the_watchdog(tmp_path: Path) -> None:
    world = World(tmp_path, watchdog_s=20)
    life = world.start()
    assert world.watchdog_ms == 20_000
    world.ms += 5
    life.clock.advance()
    life.set_sampling(True)
    life.change([program(HOT)], [])
    assert world.fed_ms == 0
    life.turn()
    assert world.fed_ms == 5


def test_a_watchdog_time_out_that_the_board_cannot_becomes_8_seconds(tmp_path: Path) -> None:
    class Pico(World):
        def WDT(self, timeout: int) -> Any:  # noqa: N802 - machine's name
            if timeout > 8388:
                raise ValueError("timeout exceeds 8388")
            return super().WDT(timeout)

    world = Pico(tmp_path, watchdog_s=30)
    world.start()
    assert world.watchdog_ms == 8000


def test_the_longest_idle_is_far_below_the_shortest_watchdog(tmp_path: Path) -> None:
    world = World(tmp_path, watchdog_s=1, sample_interval_s=3600)
    life = world.start()
    assert max(life.turn() for _ in range(10)) <= 200
    world.radio.busy = True
    assert life.turn() <= 20
    world.radio.more = True
    assert life.turn() == 1


def test_a_set_on_trial_is_good_after_half_a_minute_with_a_sample(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = on_trial(world)
    world.run(life, HEALTHY_MS - 1000)
    assert read_pointer(world.files).trial == 1
    world.run(life, 2000)
    assert read_pointer(world.files).good == 1


def test_a_set_on_trial_that_takes_no_sample_is_not_good(tmp_path: Path) -> None:
    world = World(tmp_path)
    READINGS["wait_ms"] = 5000
    life = on_trial(world)
    life.turn()  # begins to measure
    world.ms += HEALTHY_MS
    life._is_measuring = True
    life._ready_ms = world.ms + 10_000
    life.turn()
    assert read_pointer(world.files).trial == 1


def test_a_set_on_trial_that_sleeps_is_good_before_its_first_sleep(tmp_path: Path) -> None:
    world = World(tmp_path, **SLEEPY)
    life = on_trial(world)
    world.run(life, 10_000)
    assert len(world.slept) == 1
    assert read_pointer(world.files).good == 1


def on_trial(world: World) -> Life:
    write_pointer(world.files, Pointer(good=0, trial=1, tries=2))
    life = world.start()
    life.ota._running = 1
    return life


def test_an_update_over_control(tmp_path: Path) -> None:
    world = World(tmp_path)
    life = world.start()
    status, words = life.control(wire.OTA, b"\x03")
    assert status == wire.REFUSED
    assert words == b"0 of 0 bytes are here"
    status, answer = life.control(wire.OTA, bytes([BEGIN, 0, 16, 0, 0]))
    assert (status, answer) == (wire.OK, bytes([0, 0, 0, 0, 0, 16, 0, 0]))


def test_the_version_is_the_distributions() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'version = "{VERSION}"' in project.read_text(encoding="utf-8")
