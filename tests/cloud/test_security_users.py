"""Users of a running cloud, with its own MQTT server and with a mosquitto set up as the manual says."""

from __future__ import annotations

import base64
import itertools
import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import orjson
import psutil
import pytest
from clouds import wait_until
from security_kit import CAST, KINDS, SECONDS, Guarded, ask, password, quick_hashes

from spinney_cloud.data_dir import read_secrets
from spinney_cloud.users import Role, Users, change

pytestmark = pytest.mark.slow

PROCESSES = ("gateway", "gateway-out", "delivery", "coordinator", "kind")
"""That are clients of the MQTT server, or may be thought to be."""


@pytest.fixture(scope="module", params=KINDS)
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One for all tests here."""
    options = ("--limits-payload", "64KiB", "--limits-rate", "100")
    with Guarded(tmp_path_factory.mktemp(request.param), request.param, *options) as running:
        yield running


# ---- Effective at once ------------------------------------------------------------------------------------------


def test_a_user_comes_in_at_once_and_is_out_at_once(guarded: Guarded) -> None:
    with guarded.client("new") as before:
        assert before.refused
    guarded.change_users(lambda users: users.add("new", Role.MOBILE_BROKER, "city", password("new")))
    with guarded.client("sue") as other:

        def is_in() -> bool:
            with guarded.client("new") as client:
                return not client.refused

        wait_until(is_in, "the new user is let in")
        with guarded.client("new") as client:
            client.sub("hot", "n > 0")
            client.pub({"n": 1})
            assert client.next("note/hot")["publication"]["n"] == 1
            assert guarded.ask("new", "/v1/publications", {"n": 2})[0] in (200, 202)
            guarded.change_users(lambda users: users.remove("new"))
            client.ends.get(timeout=SECONDS)
        assert guarded.ask("new", "/v1/subscriptions")[0] == 401
        wait_until(lambda: not is_in(), "the removed user is let in no more")
        assert other.ends.empty()  # nobody else was dropped


def test_another_password_ends_the_connections_of_the_old_one(guarded: Guarded) -> None:
    guarded.change_users(lambda users: users.add("pia", Role.PUBLISHER, "city", password("pia")))

    def comes_in(secret: str) -> bool:
        with guarded.client("pia", secret=secret) as client:
            return not client.refused

    wait_until(lambda: comes_in(password("pia")), "the new user is let in")
    with guarded.client("pia") as client:
        guarded.change_users(lambda users: users.set_password("pia", "quite another"))
        client.ends.get(timeout=SECONDS)
    assert comes_in("quite another")
    assert not comes_in(password("pia"))
    assert guarded.ask("pia", "/v1/sources")[0] == 401


def test_a_token_holds_until_it_is_revoked_and_so_does_its_stream(guarded: Guarded) -> None:
    told: list[str] = []

    def add(users: Users) -> Users:
        users, secret, token = users.add_token("sue", 3600)
        told[:] = [secret, token.id]
        return users

    with quick_hashes():
        change(guarded.data, add)
    secret, token_id = told
    assert guarded.ask("", "/v1/subscriptions")[0] == 401
    assert guarded.ask("", "/v1/subscriptions", token="spn_wrong")[0] == 401
    assert guarded.ask("sue", "/v1/subscriptions", token=secret)[0] == 200
    url = f"{guarded.cloud.addresses()['HTTP']}/v1/notifications"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {secret}"})
    with urllib.request.urlopen(request, timeout=SECONDS) as stream:
        change(guarded.data, lambda users: users.revoke("sue", token_id))
        while stream.readline():
            pass  # the stream ends, or reading times out
    assert guarded.ask("sue", "/v1/subscriptions", token=secret)[0] == 401


# ---- Each has their own -----------------------------------------------------------------------------------------


def test_roles_hold_through_the_whole_cloud(guarded: Guarded) -> None:
    with guarded.client("mob") as mob, guarded.client("pat") as pat:
        mob.sub("roles", "role = 'pub'")
        pat.pub({"role": "pub", "n": 1})
        assert mob.next("note/roles")["publication"]["n"] == 1
        for name, leaf in (("pat", "sub/no"), ("pat", "ann"), ("sue", "pub"), ("sue", "unpub")):
            with guarded.client(name, leaves=()) as client:
                client.publish(leaf, {"role": "pub", "n": 2, "sources": []})
                # nats-server ends the connection, mosquitto acknowledges and forgets
                wait_until(lambda client=client: client.ends.qsize() or client.acknowledged.qsize(), "an answer")
        with guarded.client("sue", leaves=()) as sue:
            sue.paho.publish("spinney/pat/pub", orjson.dumps({"role": "pub", "n": 3}), 1)
            wait_until(lambda: sue.ends.qsize() or sue.acknowledged.qsize(), "an answer")
        with guarded.client("pat") as pat_again:
            pat_again.pub({"role": "pub", "n": 4})
        assert mob.next("note/roles")["publication"]["n"] == 4
    assert guarded.ask("sue", "/v1/publications", {"n": 1})[0] == 403
    assert guarded.ask("pat", "/v1/subscriptions", {"sid": "x", "filter": "n > 1"})[0] == 403
    assert guarded.ask("sue", "/v1/subscriptions/pat/x/anything")[0] in (403, 404)


def test_a_tenant_sees_only_its_own(guarded: Guarded) -> None:
    with guarded.client("mob") as mob, guarded.client("eve") as eve, guarded.client("pat") as pat:
        mob.sub("mine", "tenancy > 0")
        eve.sub("mine", "tenancy > 0")
        eve.publish("ann", {"session": "s", "validity": 600, "sources": [{"name": "eve-source", "attributes": {}}]})
        assert "formats" in eve.next("reply"), "whoever begins a session is told what the cloud reads"
        assert eve.next("reply")["ok"]
        eve.pub({"source": "shared-name", "id": "shared-name:1:1", "tenancy": 1})
        pat.pub({"source": "shared-name", "id": "shared-name:1:1", "tenancy": 2})
        # one's numbers are not the other's duplicates, and one's notifications are not the other's
        assert mob.next("note/mine")["publication"]["tenancy"] == 2
        assert eve.next("note/mine")["publication"]["tenancy"] == 1
        assert mob.gathered["note/mine"].empty()
        assert eve.gathered["note/mine"].empty()
    for path, theirs in (
        ("/v1/subscriptions?all_owners=true", "tenancy"),
        ("/v1/sources", "eve-source"),
        ("/v1/brokers", "eve"),
        ("/v1/activations", "eve"),
    ):
        seen = {name: orjson.dumps(guarded.ask(name, path)[1]).decode() for name in ("ops", "olga")}
        assert theirs in seen["olga"], path
        assert '"eve' not in seen["ops"], path
        assert '"mob' not in seen["olga"], path
    for name, mine in (("ops", 2), ("olga", 1)):
        status, said = guarded.ask(name, "/v1/explain", {"subscription": "tenancy > 0", "last": 1000})
        assert status == 200
        found = [each["publication"]["tenancy"] for each in said["results"] if "tenancy" in each["publication"]]
        assert found == [mine]


def test_an_event_stream_has_only_its_owners_notifications(guarded: Guarded) -> None:
    with guarded.client("ops") as ops, guarded.client("olga") as olga:
        for client in (ops, olga):
            client.sub("flow", "flow > 0")
        url = f"{guarded.cloud.addresses()['HTTP']}/v1/notifications"
        secret = base64.b64encode(f"olga:{password('olga')}".encode()).decode()
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {secret}"})
        with urllib.request.urlopen(request, timeout=SECONDS) as stream:
            ops.pub({"flow": 1})
            assert ops.next("note/flow")["publication"]["flow"] == 1
            olga.pub({"flow": 2})
            data = next(line for line in stream if line.startswith(b"data:") and b"flow" in line)
            assert orjson.loads(data.removeprefix(b"data:"))["publication"]["flow"] == 2


# ---- Other people's sessions, secrets, limits -------------------------------------------------------------------


def known_ids() -> list[str]:
    """What somebody who reads our documentation, or knows the users, may guess."""
    prefixes = ("", "spinney-", "spinney-mqtt-")
    return [*CAST, "spinney", "spinney-mqtt", *(f"{prefix}{name}" for prefix in prefixes for name in PROCESSES)]


def test_who_takes_every_id_that_is_no_secret_takes_nothing_away(guarded: Guarded) -> None:
    """With mosquitto ids are user names; nats-server ties them to nobody, so who has a session keeps its id secret."""
    ids = known_ids()
    id = f"mob-{os.urandom(12).hex()}"
    if guarded.mosquitto:  # its log shows ids; clients have a listener on which none is theirs to choose
        ids += [id := "mob", *(f"{read_secrets(guarded.data).client_prefix}-{name}" for name in PROCESSES)]
    numbers = itertools.count()
    with guarded.client("pat") as pat, thief(guarded, ids) as thefts:

        def owe() -> set[int]:
            """Publish for as long as it takes to take each id once."""
            before, told = thefts(), set()
            while thefts() < before + len(ids) or len(told) < 10:
                number = next(numbers)
                pat.pub({"source": "owing", "id": f"owing:1:{number}", "owed": number})
                told.add(number)
            return told

        with guarded.client("mob", id=id, clean=False) as mob:
            mob.sub("owed", "owed >= 0")
            owed = owe()
            assert {mob.next("note/owed")["publication"]["owed"] for _ in owed} == owed
        owed = owe()
        with guarded.client("mob", id=id, clean=False, leaves=()) as mob:
            assert {mob.next("note/owed")["publication"]["owed"] for _ in owed} == owed


@contextmanager
def thief(guarded: Guarded, ids: list[str]) -> Iterator[Callable[[], int]]:
    """Somebody of another tenant who connects by each id, with a clean session, over and over; says how often."""
    done, thefts = threading.Event(), 0

    def steal() -> None:
        nonlocal thefts
        while not done.is_set():
            for id in ids:
                with guarded.client("eve", id=id, leaves=()) as eve:
                    assert not eve.refused
                thefts += 1

    thread = threading.Thread(target=steal)
    thread.start()
    try:
        yield lambda: thefts
    finally:
        done.set()
        thread.join()


def test_secrets_are_on_no_command_line_and_in_no_log(guarded: Guarded) -> None:
    secrets = read_secrets(guarded.data)
    told = [secrets.nats_password, secrets.mqtt_password, secrets.system_password]
    told += [password(name) for name in CAST]
    with guarded.client("mob", secret="a-wrong-secret") as wrong:
        assert wrong.refused
    ask(f"{guarded.cloud.addresses()['HTTP']}/v1/sources", headers={"Authorization": "Bearer spn_a-wrong-secret"})
    told += ["a-wrong-secret"]
    seen = [guarded.cloud.said]
    assert secrets.client_prefix not in guarded.cloud.said
    for process in [psutil.Process(guarded.cloud.pid), *guarded.cloud.family()]:
        seen += [*process.cmdline(), *process.environ().values()]
    if guarded.mosquitto:
        seen += [guarded.mosquitto.log(), (guarded.mosquitto.folder / "spinney.conf").read_text()]
        seen += [(guarded.mosquitto.folder / name).read_text() for name in ("spinney.acl", "spinney.passwords")]
    assert len(seen) > 20
    assert not [secret for secret in told if any(secret in text for text in seen)]
    assert guarded.data.stat().st_mode & 0o077 == 0
    files = [guarded.data / "secrets.json", guarded.data / "users.json", *guarded.data.glob("run/*")]
    assert len(files) > 3 - bool(guarded.mosquitto)
    assert not [file for file in files if file.stat().st_mode & 0o077]


def test_too_much_is_refused_and_said(guarded: Guarded) -> None:
    with guarded.client("pat") as pat:
        pat.publish("pub", {"text": "x" * 70_000})
        wait_until(lambda: "limit" in str(pat.next("reply").get("refused", "")), "the size is refused")
        pat.publish("pub", [{"n": n} for n in range(1_001)])
        wait_until(lambda: "rate" in str(pat.next("reply").get("refused", "")), "the rate is refused")
        pat.pub({"n": 1})
    status, said = guarded.ask("ops", "/v1/publications", [{"text": "x" * 70_000}])
    assert status in (400, 413), said
