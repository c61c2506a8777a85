"""What a mote advertises once a broker owns it, who sets that and renews it, and what of it a plain scanner hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from bleak import BleakScanner
from motes_kit import ADDRESS, HOT, SOURCE, Listener, another, listening, programs, until, wanted
from radio_kit import OTHER, Scene, on_air

from spinney.mote.advert import BTHOME, PRESENCE, Presence
from spinney.mote.adverts import Mode
from spinney_mobile.motes import AdvertPolicy
from spinney_mobile.motes import adverts as module
from spinney_mobile.motes.mote import LOOK_SECONDS

SCANNER = "F0:00:00:00:00:0A"
EVERY = "temperature > -300"


class Scanner:
    """A plain scanner: what it hears of the mote, BTHome's measurements apart."""

    def __init__(self) -> None:
        self.adverts = 0
        self.readings: list[bytes] = []
        self.presences: list[Presence] = []
        self.newest: str | None = None

    def heard(self, device: Any, data: Any) -> None:
        if device.address == ADDRESS:
            self.adverts += 1
            if (reading := data.service_data.get(BTHOME)) is not None:
                self.readings.append(reading)
                self.newest = "encrypted" if reading[0] & 1 else "open"
            if (presence := data.service_data.get(PRESENCE)) is not None:
                told = Presence.decode(presence)
                assert told is not None
                self.presences.append(told)
                self.newest = "presence"


@asynccontextmanager
async def scanning(scene: Scene) -> AsyncIterator[Scanner]:
    """A radio of its own, which actively scans."""
    await scene.add_broker(SCANNER, "scanner")
    scanner = Scanner()
    async with BleakScanner(scanner.heard, None, "active", bluez={"adapter": "scanner"}):
        yield scanner


async def samples(scene: Scene, count: int) -> None:
    """Until so many more have been taken."""
    last = scene.life.samples + count
    await until(lambda: scene.life.samples >= last, 100_000)


def mode(scene: Scene) -> Mode:
    """In force, by the mote's own account."""
    return Mode(scene.life.modes.mode)


def health(broker: Listener) -> tuple[Any, Any]:
    return broker.health()["adverts"], broker.health()["adverts_note"]


# ---- promise 3


def test_once_it_is_owned_nothing_is_on_the_air_unless_a_feed_is_true(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with scanning(scene) as scanner, listening() as broker:
            await until(lambda: scanner.readings)
            await broker.puts_hot()
            assert mode(scene) is Mode.PRESENCE
            scanner.readings.clear()
            events = broker.motes.counts["events"]
            for step in range(200):
                scene.readings["temperature"] = 10.0 + step / 20
                await samples(scene, 1)
            assert scanner.readings == [], "the scanner heard a measurement"
            assert len(scanner.presences) > 20, "but hears that the mote is there"
            assert broker.motes.counts["events"] == events
            assert all(broker.presence), "no advert is a sample"
            scene.readings["temperature"] = 30.0
            broadcast = broker.motes.counts["broadcast"]
            await until(lambda: broker.bits(HOT) == [False, True])
            assert scanner.readings == []
            assert health(broker) == ("presence", None)
            assert broker.motes.counts["kept back"] >= 199
            assert broker.motes.counts["broadcast"] == broadcast

    on_air(tmp_path, play)


@pytest.mark.parametrize("scan", ["active", "passive"])
def test_every_sample_that_is_wanted_of_a_quiet_mote_arrives(tmp_path: Path, scan: str) -> None:
    async def play(scene: Scene) -> None:
        async with listening(mode=scan) as broker:
            await until(lambda: broker.infos or scan == "passive", 10)
            broker.motes.want(SOURCE, wanted(EVERY), epoch=1)
            if scan == "passive":
                broker.motes.heard(_named(broker))
            await until(lambda: len(broker.samples) >= 60, 300)
            assert mode(scene) is Mode.PRESENCE
            numbers = [sequence or 0 for _, sequence in broker.numbers()]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    on_air(tmp_path, play)


def _named(broker: Listener) -> Any:
    from spinney_mobile.samples import Heard

    return Heard(broker.ble.name, ADDRESS, 0.0, manufacturers={0xFFFF: bytes.fromhex("51" + "00" * 11)})


# ---- who may, and what is left alone


@pytest.mark.parametrize(
    ("policy", "heard"),
    [
        (AdvertPolicy(Mode.PRESENCE), "presence"),
        (AdvertPolicy(Mode.OPEN), "open"),
        (AdvertPolicy(None), "open"),
    ],
)
def test_the_owner_sets_what_settings_want(tmp_path: Path, policy: AdvertPolicy, heard: str) -> None:
    async def play(scene: Scene) -> None:
        async with scanning(scene) as scanner, listening(policy=policy) as broker:
            await broker.puts_hot()
            scanner.newest = None
            await until(lambda: scanner.newest)
            await samples(scene, 10)
            assert scanner.newest == heard
            assert health(broker) == (heard, None)
            assert broker.motes.counts["adverts set"] == (policy.mode is not None)

    on_air(tmp_path, play)


def test_encrypted_without_a_key_is_presence_and_is_said(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening(policy=AdvertPolicy(Mode.ENCRYPTED)) as broker:
            await broker.puts_hot()
            assert health(broker) == ("presence", module.NO_KEY)
            scene.life.key.renew()
            await until(lambda: health(broker) == ("encrypted", None), 2 * LOOK_SECONDS)

    on_air(tmp_path, play)


def test_a_mote_that_nobody_owns_is_left_as_it_is(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await until(lambda: broker.infos)
            await asyncio.sleep(LOOK_SECONDS)
            assert mode(scene) is Mode.OPEN
            assert broker.motes.counts["adverts set"] == 0

    on_air(tmp_path, play, sample_interval_s=60, advert_interval_ms=4000)


def test_a_mode_that_its_file_fixes_is_left_alone_and_said(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await broker.puts_hot()
            assert mode(scene) is Mode.OPEN
            assert health(broker) == ("open", module.FIXED)
            assert broker.motes.counts["adverts refused"] == 1
            visits = broker.motes.counts["connections"]
            await asyncio.sleep(LOOK_SECONDS / 2)
            assert broker.motes.counts["connections"] == visits, "it is not asked again and again"
            await samples(scene, 20)
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(HOT)[-1:] == [True])
            assert broker.motes.counts["broadcast"] >= 20, "everybody has heard what its filter kept back"
            assert broker.motes.counts["kept back"] == 0

    on_air(tmp_path, play, advert_mode="open", sample_interval_s=10, advert_interval_ms=2000)


def test_an_owner_of_which_nothing_is_wanted_has_the_mote_fall_silent_too(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, {}, epoch=1)
            await until(lambda: broker.infos)
            await until(lambda: mode(scene) is Mode.PRESENCE)

    on_air(tmp_path, play)


# ---- renewal


def test_the_mode_is_renewed_for_as_long_as_its_owner_is_there_and_falls_back_after(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening(policy=AdvertPolicy(Mode.PRESENCE, open_after_s=900)) as broker:
            await broker.puts_hot()
            for _ in range(5):
                await asyncio.sleep(900.0)
                assert mode(scene) is Mode.PRESENCE
            assert broker.motes.counts["adverts set"] >= 10, "three within each 15 minutes, or almost"
            assert broker.motes.counts["failures"] == 0
        await asyncio.sleep(1000.0)
        assert mode(scene) is Mode.OPEN, "as mote.toml says"
        async with listening(kept=broker.kept) as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: mode(scene) is Mode.PRESENCE)

    on_air(tmp_path, play, sample_interval_s=30, advert_interval_ms=2000, fallback="open")


def test_where_nothing_is_wanted_the_mode_is_renewed_all_the_same(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening(policy=AdvertPolicy(Mode.PRESENCE, open_after_s=900)) as broker:
            broker.motes.want(SOURCE, {}, epoch=1)
            await until(lambda: broker.infos)
            await until(lambda: mode(scene) is Mode.PRESENCE)
            for _ in range(10):
                await asyncio.sleep(300.0)
                assert mode(scene) is Mode.PRESENCE
            assert broker.motes.counts["adverts set"] >= 8, "renewed in time, not put right after it fell back"

    on_air(tmp_path, play, sample_interval_s=30, advert_interval_ms=2000, fallback="open")


def test_somebody_elses_change_is_put_right(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await broker.puts_hot()
            scene.life.modes.set(int(Mode.OPEN), 0)
            scene.life.radio.show(scene.life.sample)
            await until(lambda: mode(scene) is Mode.PRESENCE, 2 * module.REPAIR_SECONDS)

    on_air(tmp_path, play)


# ---- several brokers


def test_the_next_owner_finds_a_quiet_mote_and_one_that_only_listens_knows_it(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        async with listening() as one:
            await one.puts_hot()
            async with listening("hci1", mode="passive") as other:
                await until(lambda: other.infos, 120)
                assert all(other.presence)
                one.motes.release(SOURCE)
                other.motes.want(SOURCE, wanted(HOT), epoch=2)
                scene.readings["temperature"] = 30.0
                await until(lambda: other.bits(HOT)[-1:] == [True])
                assert mode(scene) is Mode.PRESENCE
                assert other.samples
                assert len(programs(scene)) == 1

    on_air(tmp_path, play)


def test_a_broker_that_may_not_write_to_a_quiet_mote_gives_it_up(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        async with listening() as owner:
            await owner.puts_hot()
            await asyncio.sleep(100.0)
            async with listening("hci1") as other:
                await until(lambda: other.infos)
                told = len(other.infos)
                other.motes.want(SOURCE, wanted(HOT), epoch=2)
                await until(lambda: other.motes.closed == [SOURCE], 1_000)
                assert owner.motes.closed == []
                assert "pair" in other.health()["error"]
                await asyncio.sleep(3_000.0)
                assert len(other.infos) <= told + 2, "it is not told of as a source any more"
                assert mode(scene) is Mode.PRESENCE

    on_air(tmp_path, play, bonded_writes=True, pairing_s=60)


# ---- within which time

SLEEPY = {"deep_sleep": True, "sample_interval_s": 60, "bonded_writes": False}


def p95(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.95)]


SHORT = 5
LONG = 60


@pytest.mark.parametrize(
    ("scan", "sleepy", "turns"),
    [
        ("active", True, SHORT),
        ("passive", False, SHORT),
        pytest.param("passive", True, LONG, marks=pytest.mark.soak),
        pytest.param("active", True, LONG, marks=pytest.mark.soak),
        pytest.param("active", False, LONG, marks=pytest.mark.soak),
    ],
)
def test_a_quiet_mote_is_reached_in_time_and_tells_its_events_at_once(
    tmp_path: Path, scan: str, sleepy: bool, turns: int
) -> None:
    """Found within 2 minutes; another table within `reach_s`, an event within 5 s of its sample (p95)."""

    async def play(scene: Scene) -> None:
        now = asyncio.get_running_loop().time
        async with listening() as before:
            before.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: before.bits(HOT) == [False], 600)
            await until(lambda: not before.is_connected)
        began = now()
        async with listening(mode=scan) as broker:
            await until(lambda: broker.presence, 120)
            assert broker.presence[0], "it is known to be a mote"
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.on_mote() == {HOT}, 300)
            found, reached, told = now() - began, [], []
            for turn in range(turns):
                await asyncio.sleep(100.0 + 47.0 * (turn % 20))
                asked, other = now(), f"temperature > {50 + turn % 30}"
                broker.motes.want(SOURCE, wanted(HOT, other), epoch=1)
                await until(lambda: broker.health()["filters"] == 2, 1_000)
                reached.append(now() - asked)
                broker.motes.want(SOURCE, wanted(HOT), epoch=1)
                await until(lambda: broker.health()["filters"] == 1, 1_000)
                scene.readings["temperature"] = 30.0 if turn % 2 == 0 else 20.0
                await until(lambda count=turn + 1: len(broker.samples) >= count, 1_000)  # type: ignore[misc]
                sample = broker.samples[-1]
                told.append(sample.heard - sample.time)
            print(f"{scan}, sleepy {sleepy}: found {found:.1f} s, reached {reached}, told {told}")
            assert found <= 120.0
            assert p95(reached) <= 300.0, reached
            assert p95(told) <= 5.0, told
            assert mode_now(scene) in (Mode.PRESENCE, None)

    on_air(tmp_path, play, **(SLEEPY if sleepy else {"sample_interval_s": 60, "advert_interval_ms": 1000}))


def mode_now(scene: Scene) -> Mode | None:
    return None if scene.mote.board is None else mode(scene)


def test_many_motes_that_sleep_are_all_reached_though_each_is_there_for_a_moment(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        readings = {"temperature": 24.0}
        motes = [
            another(scene, tmp_path / str(n), n, readings, **SLEEPY, advert_interval_ms=1000) for n in range(2, 10)
        ]
        for mote in motes:
            mote.power_on()
            await asyncio.sleep(1.0)
        sources = [SOURCE, *(mote.radio.address.replace(":", "").lower() for mote in motes)]
        async with listening() as broker:
            for source in sources:
                broker.motes.want(source, wanted(HOT), epoch=1)
            await until(lambda: all(on_mote(broker, source, 1) for source in sources), 600)
            await asyncio.sleep(600.0)
            for source in sources:
                broker.motes.want(source, wanted(HOT, "temperature > 80"), epoch=1)
            await until(lambda: all(on_mote(broker, source, 2) for source in sources), 300)
        for mote in motes:
            mote.power_off()

    on_air(tmp_path / "1", play, **SLEEPY)


def on_mote(broker: Listener, source: str, filters: int) -> bool:
    health = broker.health(source)
    return bool(health) and health["filters"] == filters and health["adverts"] == "presence"
