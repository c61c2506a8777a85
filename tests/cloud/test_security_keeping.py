"""Backups of a whole cloud, running or stopped: a cloud that is started on a restored one goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from clouds import Cloud, kill, wait_until
from security_kit import REAL, Client, ask

from spinney_cloud import backup_command

pytestmark = pytest.mark.slow

SUBSCRIPTIONS = {
    "hot": "temp > 40",
    "heat": "WHEN temp > 25 UNTIL temp <= 22",
    "rooms": "WHEN temp > 25 UNTIL temp <= 22 EACH room",
    "best": "TOP 2 OVER LAST 100 BY temp DESC",
}


class Kept(NamedTuple):
    """What the backups are of."""

    backups: dict[str, Path]
    subscriptions: list[dict[str, Any]]
    """As the API tells them."""
    entered: dict[str, Any]
    """The notification of `heat`."""


def subscriptions(cloud: Cloud) -> list[dict[str, Any]]:
    status, said = ask(f"{cloud.addresses()['HTTP']}/v1/subscriptions?owner=kit")
    assert status == 200, said
    return sorted(said["subscriptions"], key=lambda each: str(each["sid"]))


def client(cloud: Cloud) -> Client:
    """Without users, anybody on loopback is let in."""
    return Client(cloud.port("MQTT"), "kit", secret="")


def reading(number: int, temp: float, **more: Any) -> dict[str, Any]:
    return {"source": "m7", "id": f"m7:1:{number}", "temp": temp, "room": "hall", **more}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Backups of one cloud, taken while it ran with and without its log, and when it had stopped."""
    folder = tmp_path_factory.mktemp("keeping")
    backups = {name: folder / f"{name}.backup" for name in ("hot", "hot with its log", "stopped")}

    def back_up(name: str, *more: str) -> None:
        assert backup_command.main(["backup", str(backups[name]), "--data", str(cloud.data), *more]) == 0

    with Cloud(folder / "data", program=REAL) as cloud:
        with client(cloud) as kit:
            for sid, text in SUBSCRIPTIONS.items():
                kit.sub(sid, text)
            kit.pub(reading(1, 30))
            entered = {sid: kit.next(f"note/{sid}") for sid in ("heat", "rooms", "best")}
            assert entered["heat"]["why"] == "enter"
        back_up("hot")
        back_up("hot with its log", "--log")
        before = subscriptions(cloud)
        kill(cloud.pid)  # so that nothing but the backup has been written for it
        cloud.wait()
    with cloud:
        assert cloud.stop() == 0
        back_up("stopped")
    assert [each["sid"] for each in before] == sorted(SUBSCRIPTIONS)
    return Kept(backups, before, entered["heat"])


@pytest.mark.parametrize("name", ["hot", "hot with its log", "stopped"])
def test_a_restored_cloud_goes_on_where_the_backup_was_taken(name: str, kept: Kept, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert backup_command.main(["restore", str(kept.backups[name]), "--data", str(data)]) == 0
    with Cloud(data, program=REAL) as cloud, client(cloud) as kit:
        assert subscriptions(cloud) == kept.subscriptions
        kit.pub(reading(1, 30))  # it is known already
        kit.pub(reading(2, 50))
        assert kit.next("note/hot")["publication"]["temp"] == 50
        kit.pub(reading(3, 20))
        left = kit.next("note/heat")
        assert (left["why"], left["publication"]["temp"]) == ("exit", 20)
        assert left["since"] == kept.entered["time"]
        assert kit.next("note/rooms")["why"] == "exit"
        # of 30, 50 and 20 the first is there already, and the last is none of the best two
        assert kit.next("note/best")["publication"]["temp"] == 50
        assert all(kit.gathered[f"note/{sid}"].empty() for sid in SUBSCRIPTIONS)
        kit.sub("later", "temp > 40")
        started = {each["sid"]: each["start"] for each in subscriptions(cloud)}
        assert started["later"] > max(each["start"] for each in kept.subscriptions)
        body = {"subscription": "temp > 0", "last": 100}
        status, said = ask(f"{cloud.addresses()['HTTP']}/v1/explain", body)
        assert status == 200
        temps = [each["publication"]["temp"] for each in said["results"]]
        assert temps == ([20, 50, 30, 30] if "log" in name else [20, 50, 30])


def test_a_backup_can_be_taken_while_readings_and_subscriptions_come(tmp_path: Path) -> None:
    """Afterwards who is matched are those whom the API tells of, wherever the backup cut through a change."""
    made = tmp_path / "made"
    sids = [f"s{number}" for number in range(40)]
    with Cloud(tmp_path / "data", program=REAL) as cloud, client(cloud) as kit:
        for number, sid in enumerate(sids):
            kit.publish(f"sub/{sid}", f"n = {number}")
        kit.sub("all", "n >= 0")
        for number in range(200):
            kit.publish("pub", {"n": number})
            kit.publish(f"sub/{sids[number % 40]}", "" if number % 3 else f"n = {number % 40}")
        assert backup_command.main(["backup", str(made), "--log", "--data", str(cloud.data)]) == 0
    assert backup_command.main(["restore", str(made), "--data", str(tmp_path / "new")]) == 0
    with Cloud(tmp_path / "new", program=REAL) as cloud, client(cloud) as kit:
        kit.sub("last", "n = -1")  # after what was under way
        known = {each["sid"] for each in subscriptions(cloud)}
        assert {"all", "last"} < known
        kit.publish("pub", [*({"n": number, "again": True} for number in range(40)), {"n": -1}])
        assert kit.next("note/last")["publication"]["n"] == -1
        again: set[str] = set()

        def heard() -> set[str]:
            again.update(sid for sid in sids if any(_all_of(kit, f"note/{sid}")))
            return again

        wait_until(lambda: heard() >= known & set(sids), "who is known is notified")
        assert heard() == known & set(sids)


def _all_of(kit: Client, leaf: str) -> list[bool]:
    """For each message so far, whether it is of a reading after the restoration."""
    gathered = kit.gathered[leaf]
    return ["again" in gathered.get()["publication"] for _ in range(gathered.qsize())]
