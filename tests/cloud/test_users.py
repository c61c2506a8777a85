"""Who may come in, and the file that says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spinney_cloud import users as module
from spinney_cloud.users import Role, Users, UsersError, UsersFile


@pytest.fixture(autouse=True)
def _quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BCRYPT_ROUNDS", 4)
    monkeypatch.setattr(module, "MOSQUITTO_ITERATIONS", 10)


@pytest.fixture
def users() -> Users:
    return Users().add("alice", Role.SUBSCRIBER, "city", "right", now=1000.0)


def test_a_password_lets_its_user_in_and_no_other(users: Users) -> None:
    assert users.authenticate("alice", "right") == users.user("alice")
    for name, password in [("alice", "wrong"), ("alice", ""), ("bob", "right"), ("alice", "right" + "x" * 80)]:
        assert users.authenticate(name, password) is None


def test_a_token_lets_its_user_in_until_it_is_over(users: Users) -> None:
    users, secret, token = users.add_token("alice", 60.0, now=1000.0)
    assert users.authenticate_token(secret, now=1059.0) == users.user("alice")
    assert users.authenticate_token(secret, now=1060.0) is None
    assert users.authenticate_token(secret + "x", now=1001.0) is None
    assert users.revoke("alice", token.id).authenticate_token(secret, now=1001.0) is None


def test_a_new_token_takes_the_place_of_those_that_are_over(users: Users) -> None:
    users, _, _ = users.add_token("alice", 10.0, now=1000.0)
    users, _, second = users.add_token("alice", 10.0, now=2000.0)
    assert users.user("alice").tokens == (second,)


def test_another_password_ends_the_old_one_and_keeps_tokens(users: Users) -> None:
    users, secret, _ = users.add_token("alice", 60.0, now=1000.0)
    users = users.set_password("alice", "newer")
    assert users.authenticate("alice", "right") is None
    assert users.authenticate("alice", "newer")
    assert users.authenticate_token(secret, now=1001.0)


def test_without_users_all_clients_are_of_one_tenant_and_with_users_only_those(users: Users) -> None:
    assert Users().tenant_of("anybody") == "default"
    assert users.tenant_of("alice") == "city"
    assert users.tenant_of("anybody") is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda users: users.add("alice", Role.OPERATOR, "city", "x"), "already"),
        (lambda users: users.add("a/b", Role.OPERATOR, "city", "x"), "A-Z a-z 0-9"),
        (lambda users: users.add("bob", Role.OPERATOR, "the city", "x"), "tenant"),
        (lambda users: users.add("bob", Role.OPERATOR, "city", ""), "empty"),
        (lambda users: users.add("bob", Role.OPERATOR, "city", "ž" * 37), "72 bytes"),
        (lambda users: users.remove("bob"), "no user 'bob'"),
        (lambda users: users.revoke("alice"), "no token"),
    ],
)
def test_what_cannot_be_is_refused(users: Users, change: Callable[[Users], Users], reason: str) -> None:
    with pytest.raises(UsersError, match=reason):
        change(users)


def test_the_file_holds_everything_and_no_secret(users: Users, tmp_path: Path) -> None:
    users, secret, _ = users.add_token("alice", 60.0, now=1000.0)
    users.save(tmp_path)
    text = (tmp_path / "users.json").read_text()
    assert "right" not in text
    assert secret not in text
    assert (tmp_path / "users.json").stat().st_mode & 0o077 == 0
    assert Users.load(tmp_path).to_json() == users.to_json()
    assert Users.load(tmp_path).authenticate("alice", "right")


def test_no_file_is_no_users(tmp_path: Path) -> None:
    assert len(Users.load(tmp_path)) == 0


@pytest.mark.parametrize("text", ["", "[]", '{"v":1,"users":[{"name":"alice"}]}', '{"v":2,"users":[]}'])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "users.json").write_text(text)
    with pytest.raises(UsersError, match=r"users\.json"):
        Users.load(tmp_path)


def test_a_name_that_would_break_topics_is_refused_in_the_file_too(users: Users, tmp_path: Path) -> None:
    item = users.to_json()
    item["users"][0]["name"] = "a.>"
    (tmp_path / "users.json").write_text(json.dumps(item))
    with pytest.raises(UsersError, match="name"):
        Users.load(tmp_path)


def test_a_change_of_the_file_is_seen_at_once(users: Users, tmp_path: Path) -> None:
    file = UsersFile(tmp_path)
    assert len(file.current()) == 0
    users.save(tmp_path)
    seen = file.current()
    assert "alice" in seen
    assert file.current() is seen
    users.remove("alice").save(tmp_path)
    assert "alice" not in file.current()
