"""Who comes in, and what each role may do, with the real process and a real users' file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from api_kit import Cloud, cloud
from test_api_explain import record, write

from spinney_cloud.users import FILE, Role, Users

PASSWORDS = {role: f"secret of {role}" for role in Role}
EXPLAIN = {"subscription": "temp > 3", "publication": {"temp": 4}}


def name_of(role: Role) -> str:
    return role.replace(" ", "-")


def with_all_roles() -> Users:
    users = Users()
    for role in Role:
        users = users.add(name_of(role), role, "default", PASSWORDS[role])
    return users


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """HTTP with one user of each role."""
    with cloud(tmp_path_factory.mktemp("guarded"), "http") as running:
        with_all_roles().save(running.settings.data)
        yield running


@pytest.fixture(scope="module")
def open_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("open"), "http") as running:
        yield running


@pytest.fixture
def opened(open_cloud: Cloud) -> Iterator[Cloud]:
    """HTTP without users, at first."""
    yield open_cloud
    (open_cloud.settings.data / FILE).unlink(missing_ok=True)


def explain(cloud: Cloud, **options: object) -> int:
    with cloud.client(**options) as client:
        return client.post("/v1/explain", json=EXPLAIN).status_code


def test_without_users_programs_of_this_machine_may_do_all(opened: Cloud) -> None:
    assert explain(opened) == 200
    with opened.client() as client:
        assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
    ],
)
def test_without_users_pages_of_other_sites_are_kept_out(opened: Cloud, headers: dict[str, str]) -> None:
    assert explain(opened, headers=headers) == 403


def test_without_users_a_page_of_our_own_is_let_in(opened: Cloud) -> None:
    assert explain(opened, headers={"Origin": opened.url}) == 200


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via", "X-Real-IP"])
def test_without_users_nobody_is_let_in_through_a_proxy(opened: Cloud, header: str) -> None:
    """All the world would come from this machine."""
    assert explain(opened, headers={header: "127.0.0.1"}) == 401


@pytest.mark.slow
def test_nobody_comes_in_without_a_name_where_that_is_set(tmp_path: Path) -> None:
    with cloud(tmp_path, "http", security={"anonymous": "never"}) as running:
        assert explain(running) == 401


def test_a_stranger_is_told_how_to_come_in(guarded: Cloud) -> None:
    with guarded.client() as client:
        answer = client.post("/v1/explain", json=EXPLAIN)
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert "Basic" in answer.headers["www-authenticate"]


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic !!!",
        "Basic c3Vic2NyaWJlcg==",
        "Basic /////w==",
        "Bearer",
        "Bearer spn_wrong",
        "Digest x",
        "\xff",
    ],
)
def test_who_says_it_wrongly_stays_outside(guarded: Cloud, header: str) -> None:
    assert explain(guarded, headers={"Authorization": header.encode("latin-1")}) == 401


def test_another_password_or_name_stays_outside(guarded: Cloud) -> None:
    assert explain(guarded, auth=("subscriber", "wrong")) == 401
    assert explain(guarded, auth=("nobody", "wrong")) == 401
    assert explain(guarded, auth=("subscriber", PASSWORDS[Role.SUBSCRIBER])) == 200
    assert explain(guarded, auth=("subscriber", "wrong")) == 401


REQUESTS = {
    "publish": ("POST", "/v1/publications"),
    "subscribe": ("GET", "/v1/subscriptions"),
    "explain": ("POST", "/v1/explain"),
    "look": ("GET", "/v1/sources"),
    "operate": ("GET", "/metrics"),
}
ALLOWED = {
    Role.PUBLISHER: {"publish", "look"},
    Role.MOBILE_BROKER: {"publish", "look"},
    Role.SUBSCRIBER: {"subscribe", "explain", "look"},
    Role.OPERATOR: set(REQUESTS),
}


@pytest.mark.parametrize("role", Role, ids=name_of)
def test_each_role_may_do_its_own_and_no_more(guarded: Cloud, role: Role) -> None:
    with guarded.client(auth=(name_of(role), PASSWORDS[role])) as client:
        found = {what: client.request(*request).status_code for what, request in REQUESTS.items()}
    assert {what for what, status in found.items() if status != 403} == ALLOWED[role]
    assert 401 not in found.values()


def test_only_operators_name_another_owner(guarded: Cloud) -> None:
    with guarded.client(auth=("subscriber", PASSWORDS[Role.SUBSCRIBER])) as client:
        assert client.get("/v1/subscriptions", params={"owner": "ana"}).status_code == 403
        assert client.get("/v1/subscriptions", params={"all_owners": 1}).status_code == 403
        assert client.get("/v1/subscriptions", params={"owner": "subscriber"}).status_code == 503  # no coordinator


def test_a_token_holds_until_it_ends_or_is_revoked(opened: Cloud) -> None:
    users, secret, token = with_all_roles().add_token("subscriber", 3600.0)
    users, over, _ = users.add_token("subscriber", 1.0, now=time.time() - 2)
    users.save(opened.settings.data)
    assert explain(opened, headers={"Authorization": f"Bearer {secret}"}) == 200
    assert explain(opened, headers={"Authorization": f"Bearer {over}"}) == 401
    users.revoke("subscriber", token.id).save(opened.settings.data)
    assert explain(opened, headers={"Authorization": f"Bearer {secret}"}) == 401


def test_users_come_and_go_at_once(opened: Cloud) -> None:
    assert explain(opened) == 200
    users = with_all_roles()
    users.save(opened.settings.data)
    assert explain(opened) == 401
    known = ("subscriber", PASSWORDS[Role.SUBSCRIBER])
    assert explain(opened, auth=known) == 200
    users.set_password("subscriber", "another").save(opened.settings.data)
    assert explain(opened, auth=known) == 401
    users.remove("subscriber").save(opened.settings.data)
    assert explain(opened, auth=known) == 401


def test_a_damaged_file_of_users_lets_nobody_in(opened: Cloud) -> None:
    (opened.settings.data / FILE).write_text("{")
    assert explain(opened) == 503
    with opened.client() as client:
        assert client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_many_wrong_passwords_do_not_stop_who_has_a_token(guarded: Cloud) -> None:
    users, secret, _ = with_all_roles().add_token("subscriber", 3600.0)
    users.save(guarded.settings.data)
    attempts = [("subscriber", f"wrong {number}") for number in range(24)]

    async def attack() -> tuple[int, set[int]]:
        async with httpx.AsyncClient(base_url=guarded.url, timeout=20) as client:
            tasks = [asyncio.create_task(client.post("/v1/explain", json=EXPLAIN, auth=each)) for each in attempts]
            mine = await client.post("/v1/explain", json=EXPLAIN, headers={"Authorization": f"Bearer {secret}"})
            done = sum(task.done() for task in tasks)
            assert mine.status_code == 200
            return done, {(await task).status_code for task in tasks}

    done, statuses = asyncio.run(attack())
    assert statuses == {401}
    assert done < len(attempts) / 2


def test_the_last_of_the_log_are_the_tenants_own(opened: Cloud) -> None:
    users = with_all_roles().add("otto", Role.SUBSCRIBER, "other", "secret of otto")
    users.save(opened.settings.data)
    write(opened, [record("default", "m1", 1, 0, [{"temp": 1}]), record("other", "m1", 1, 0, [{"temp": 2}])])
    body = {"subscription": "temp > 0", "last": 10}
    with opened.client(auth=("otto", "secret of otto")) as client:
        told = client.post("/v1/explain", json=body).json()
        dry = client.post(
            "/v1/subscriptions", params={"dry_run": 1, "last": "1h"}, json={"subscription": "temp > 0"}
        ).json()
    assert [result["publication"]["temp"] for result in told["results"]] == [2]
    assert [note["publication"]["temp"] for note in dry["notifications"]] == [2]


def test_a_refused_caller_is_counted(guarded: Cloud) -> None:
    assert explain(guarded, auth=("subscriber", "wrong")) == 401
    with guarded.client(auth=("operator", PASSWORDS[Role.OPERATOR])) as client:
        assert 'spinney_http_auth_refused_total{reason="wrong"}' in client.get("/metrics").text
