"""The small parts of the uplink: how it gets in, whose a source is, and what becomes of refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spinney_cloud.certs import Certificates
from spinney_mobile import dead_letters as dead_letters_module
from spinney_mobile.dead_letters import MAX_REASONS, MAX_SHOWN, DeadLetters
from spinney_mobile.leases import Leases
from spinney_mobile.settings import Cloud, Settings
from spinney_mobile.uplink import access_of


def test_how_it_gets_in_follows_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret \r\nof the cloud\n")
    ca = Certificates(tmp_path).make_ca()
    cloud = Cloud(url="mqtts://cloud.example", user="b1", password_file=file, ca=ca)
    access = access_of(Settings(cloud=cloud))
    assert access is not None
    assert (access.name, access.user, access.password) == ("b1", "b1", "s3cret ")
    assert (str(access.server), access.ca) == ("mqtts://cloud.example:8883", ca)
    assert access_of(Settings(name="b2", cloud=Cloud(url=None))) is None
    anonymous = access_of(Settings(name="b2"))
    assert anonymous is not None
    assert (anonymous.name, anonymous.user) == ("b2", None)
    with pytest.raises(ValueError, match=r"cloud\.password_file .*gone: No such file"):
        access_of(Settings(cloud=replace(cloud, password_file=tmp_path / "gone")))


def told(*leases: tuple[str, str | None, int]) -> list[dict[str, Any]]:
    return [{"source": source, "owner": owner, "epoch": epoch or None} for source, owner, epoch in leases]


def test_until_the_cloud_names_another_owner_a_source_is_ours() -> None:
    leases = Leases("b1")
    assert leases.owns("m1")
    assert leases.epoch("m1") == 0
    leases.want(["m1", "m2"])
    changed = leases.tell(told(("m1", "b1", 4), ("m2", "b2", 5)))
    assert sorted(changed) == ["m1", "m2"]
    assert (leases.owns("m1"), leases.epoch("m1")) == (True, 4)
    assert (leases.owns("m2"), leases.epoch("m2")) == (False, 0)
    assert leases.tell(told(("m1", "b1", 4), ("m2", "b2", 5))) == {}
    assert list(leases.tell(told(("m1", "b1", 4), ("m2", None, 0)))) == ["m2"]
    assert leases.owns("m2")


def test_what_is_no_longer_asked_for_is_forgotten() -> None:
    leases = Leases("b1")
    leases.want(["m1"])
    leases.tell(told(("m1", "b1", 4)))
    assert leases.want([])
    assert not leases.want([])
    leases.tell([])
    assert leases.known == {}


def test_leases_come_back_as_they_were() -> None:
    leases = Leases("b1")
    leases.tell(told(("m1", "b2", 3)))
    leases.tell(told(("m1", "b1", 4)))
    leases.tell(told(("m1", None, 0)))
    leases.tell(told(("m1", "b1", 9)))
    again = Leases("b1")
    again.restore(leases.encode())
    assert again.known == leases.known
    assert [again.epoch_of_labels("m1", made) for made in (2, 4, 9)] == [2, 9, 9]  # before 4 it was another's


def test_refusals_are_kept_within_a_bound_and_counted_by_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters_module, "MAX_FILE_BYTES", 10_000)
    dead = DeadLetters(tmp_path)
    for number in range(1_000):
        dead.put({"publication": {"n": number}}, "lease: m1 is another's")
    for number in range(MAX_REASONS + 50):
        dead.put({"publication": {"n": number}}, f"reason {number}")
    assert dead.counts["lease"] == 1_000
    assert dead.counts["other"] == 51
    assert dead.total == 1_000 + MAX_REASONS + 50
    assert len(dead.newest) == MAX_SHOWN
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["refused.1.jsonl", "refused.jsonl"]
    assert all(file.stat().st_size < 11_000 for file in files)
    assert json.loads(files[1].read_text().splitlines()[-1])["reason"] == f"reason {MAX_REASONS + 49}"


def test_a_disk_that_keeps_no_refusals_is_told_of_and_breaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = DeadLetters(tmp_path / "gone")
    dead.put({"publication": {}}, "rate: too quick")
    assert dead.total == 1
    assert "what the cloud refused is not kept" in caplog.text
