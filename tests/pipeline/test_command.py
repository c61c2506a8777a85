"""`spinney pipeline` and `spinney lake` as people use them: options, refusals, and what they say."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from clouds import wait_until
from kit import city, make_log, purge, put
from servers import NatsServer, free_ports
from test_lake import fill

from spinney_cloud.command import COMMANDS
from spinney_cloud.configuration import KEYS
from spinney_cloud.pipeline import command, command_lake
from spinney_cloud.pipeline.direct_get import LogServer
from spinney_cloud.pipeline.duplicates import Windows
from spinney_cloud.pipeline.lake import Lake, LakeFull
from spinney_cloud.pipeline.needs import missing
from spinney_cloud.pipeline.scan import LogTrimmed
from spinney_cloud.pipeline.source import Options
from spinney_cloud.pipeline.windows import LENGTHS
from spinney_cloud.service import Endpoints, write_run
from spinney_cloud.settings import Settings

PROGRAM = [sys.executable, "-m", "spinney_tools", "pipeline"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def wanted(*arguments: str) -> command.Wanted:
    return command._wanted(command._parser().parse_args(arguments))


# ---- what is asked for


def test_without_options_it_is_the_cloud_of_the_usual_data_directory(tmp_path: Path) -> None:
    found = wanted()
    job = found.job()
    assert found.server == LogServer(run=str(tmp_path / "spinney-data/run/run.json"))
    assert found.where == f"the cloud on {tmp_path / 'spinney-data'}"
    assert job.lake == str(tmp_path / "spinney-data/lake")
    assert job.matching is not None
    assert job.matching.checkpoint == str(tmp_path / "spinney-data/lake/checkpoints/matching")
    assert job.plan.windows == Windows()
    assert (job.policy.retain_days, job.plan.once, job.plan.skip_missing, job.spark.master) == (
        None,
        False,
        False,
        None,
    )


def test_options_say_what_it_does() -> None:
    options = ["--lake", "s3://b/l", "--data", "/d", "--trigger", "2s", "--max-rows", "7", "--cores", "3", "--once"]
    options += ["--heap", "2GiB", "--compact", "1h", "--retain-days", "30", "--vacuum-after", "90m", "--skip-missing"]
    options += ["--master", "spark://h:7077", "--conf", "spark.a=b=c", "--conf", "spark.d="]
    options += ["--checkpoints", "/shared/checkpoints"]
    job = wanted(*options).job()
    plan, policy, spark = job.plan, job.policy, job.spark
    assert (job.lake, plan.trigger_seconds, plan.limits.rows, plan.partitions) == ("s3://b/l", 2.0, 7, 3)
    assert (plan.once, plan.skip_missing, policy.retain_days, policy.every_seconds) == (True, True, 30, 3600.0)
    assert (policy.vacuum_hours, spark.heap, spark.cores, spark.master) == (2, "2048m", 3, "spark://h:7077")
    assert spark.conf == {"spark.a": "b=c", "spark.d": ""}
    assert job.matching is not None
    assert (job.matching.once, job.matching.skip_missing, job.matching.checkpoint) == (
        True,
        True,
        "/shared/checkpoints/matching",
    )
    assert wanted("--lake", "s3://b/l", "--data", "/d").settings.checkpoints == "/d/checkpoints"
    assert wanted("--matching", "false").job().matching is None
    assert policy.lengths == LENGTHS  # the rounds wait for the windows
    assert wanted("--windows", "false").job().policy.lengths == ()


def test_another_server_is_named_without_its_password() -> None:
    found = wanted("--nats", "nats://me:secret@a:4222, tls://b:4", "--nats-tls-ca", "ca.pem")
    assert found.where == "a:4222, b:4"
    assert found.server.url == "nats://me:secret@a:4222, tls://b:4"
    assert found.server.ca == str(Path.cwd() / "ca.pem")


def test_file_and_environment_count_and_flags_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cloud.toml").write_text('[pipeline]\ntrigger = "3s"\nretain_days = 9\nlake = "mine"\n')
    monkeypatch.setenv("SPINNEY_CLOUD__PIPELINE__RETAIN_DAYS", "8")
    job = wanted("--config", "cloud.toml", "--retain-days", "7").job()
    assert (job.plan.trigger_seconds, job.policy.retain_days, job.lake) == (3.0, 7, str(tmp_path / "mine"))
    assert wanted("--config", "cloud.toml").job().policy.retain_days == 8


def run_file(data: Path, **log: Any) -> None:
    (data / "run").mkdir(parents=True)
    endpoints = Endpoints(nats_url="nats://127.0.0.1:1", mqtt_host="", mqtt_port=0, mqtt_kind="", http_port=0)
    write_run(data / "run/run.json", Settings.model_validate({"log": log}), endpoints)


def test_what_is_a_duplicate_is_as_the_cloud_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_file(tmp_path / "spinney-data", duplicate_window=60, content_window=5, pipeline=True)
    assert wanted("--log-duplicate-window", "1h").job().plan.windows == Windows(60.0, 5.0)
    assert not caplog.text
    run_file(tmp_path / "other")
    wanted("--data", "other").job()
    assert "the cloud does not wait for its pipeline" in caplog.text
    assert "--log-pipeline" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--trigger", "soon"], "--trigger: 'soon' will not do; expected: a time above 0, such as 90, 10m or 7d"),
        (["--retain-days", "0", "--cores", "x"], "--retain-days: '0' will not do; expected: a whole number above 0"),
        (["--config", "none.toml"], "none.toml: cannot be read: No such file or directory"),
        (["--master", "sc://h:15002"], "over Spark Connect the lake and the log can be read"),
        (["--master", "spark://h:7077", "--lake", "s3://b/l"], "with the lake s3://b/l needs --checkpoints: a folder"),
    ],
)
def test_what_is_wrong_is_said_by_its_own_option(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_setting_of_spark_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("spark.x", "x=y"):
        with pytest.raises(SystemExit):
            command.main(["--conf", text])
        assert f"{text!r} is no setting of Spark" in capsys.readouterr().err


def test_check_says_what_would_be_and_makes_nothing(tmp_path: Path) -> None:
    words = [*PROGRAM, "--check", "--nats", "nats://127.0.0.1:1", "--retain-days", "5"]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "log: 127.0.0.1:1\n" in said
    assert f"lake: {tmp_path / 'spinney-data/lake'}\n" in said
    assert re.search(r"^Java: \d+, /", said, re.MULTILINE)
    assert "keeps: 5 days" in said
    assert said.endswith("ok\n")
    assert list(tmp_path.iterdir()) == []


def test_where_packages_are_missing_one_line_says_how_to_have_them() -> None:
    text = missing(("json", "no_such_package"))
    assert text == "not installed: no_such_package; have all it needs: pip install 'spinney[pipeline]'"
    assert missing() is None


def test_what_messages_name_is_there() -> None:
    """Options, settings and commands that an error tells to use."""
    trimmed = str(LogTrimmed(7, 12))
    assert "records 8 to 11 were purged unread" in trimmed
    assert "--skip-missing" in trimmed
    assert "--skip-missing" in command.FLAGS.values()
    assert KEYS["pipeline.skip_missing"].flag == "--pipeline-skip-missing"
    assert "--pipeline-skip-missing" in trimmed
    assert "spinney cloud restore" in trimmed
    assert "restore" in COMMANDS
    assert Options.read({"url": "nats://h", "on_trimmed": "skip"}).skip_trimmed
    assert "log.pipeline = true" in trimmed
    assert KEYS["log.pipeline"].kind is bool
    assert "(pipeline.retain_days)" in str(LakeFull("lake", 1, 2))
    assert "pipeline.retain_days" in KEYS


# ---- as a process, before it needs Java


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """With all that it says in a file."""
    said = Path("said")
    with said.open("w") as out:
        started = subprocess.Popen([*PROGRAM, *arguments], stdout=out, stderr=out, text=True)
    try:
        yield started, said
    finally:
        family = psutil.Process(started.pid).children(recursive=True) if started.poll() is None else []
        started.kill()
        started.wait()
        for each in family:
            each.kill()


def test_a_cloud_that_is_not_up_yet_is_waited_for_until_told_to_stop() -> None:
    with process() as (started, said):
        wait_until(lambda: "waiting for the cloud on" in said.read_text(), "it says so")
        started.send_signal(signal.SIGTERM)
        assert started.wait(60) == 0
    lines = said.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        f"pipeline: waiting for the cloud on {Path.cwd() / 'spinney-data'}: it has not run yet",
        "pipeline: stopped",
    ]
    assert not Path("spinney-data").exists()


def test_a_server_that_is_not_there_is_waited_for_and_named() -> None:
    [port] = free_ports(1)
    with process("--nats", f"nats://127.0.0.1:{port}") as (started, said):
        wait_until(lambda: "Connection refused" in said.read_text(), "it says so")
        started.send_signal(signal.SIGINT)
        assert started.wait(60) == 0


def test_a_trimmed_log_ends_it_before_java_is_started_with_what_is_missing(nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    put(nats, city(6))
    Lake(tmp_path / "lake").advance("observations", 2)
    purge(nats, 4)
    with process("--nats", nats.url, "--lake", "lake") as (started, said):
        assert started.wait(60) == 1
    [line] = said.read_text().splitlines()
    assert line.startswith("spinney pipeline: the log begins at record 5, but the pipeline has read up to 2 only: ")
    assert "--skip-missing" in line


def test_a_second_ctrl_c_ends_it_at_once(nats: NatsServer) -> None:
    make_log(nats)
    with process("--nats", nats.url, "--lake", "lake") as (started, said):
        wait_until(lambda: "starting Spark" in said.read_text(), "it starts Spark")
        wait_until(lambda: psutil.Process(started.pid).children(), "Java is being started")
        family = psutil.Process(started.pid).children(recursive=True)
        started.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping" in said.read_text(), "the first is heard")
        started.send_signal(signal.SIGINT)
        assert started.wait(60) == 130
        gone, left = psutil.wait_procs(family, timeout=60)
        assert gone
        assert not left


def test_where_java_is_killed_it_says_so_and_ends_at_once(nats: NatsServer) -> None:
    """Who started it starts it again; nothing else that is under way in it has a say in how it ends."""
    make_log(nats)
    put(nats, city(6))
    with process("--nats", nats.url, "--lake", "lake") as (started, said):
        wait_until(lambda: "goes into the lake" in said.read_text(), "it begins", 120)
        [java] = [each for each in psutil.Process(started.pid).children(recursive=True) if each.name() == "java"]
        java.kill()
        assert started.wait(60) == 1
    assert said.read_text().splitlines()[-1] == (
        "spinney pipeline: Spark's Java process is gone; its last words are above. Start again"
    )


# ---- spinney lake


def test_stats_say_what_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(Lake(tmp_path / "lake"), days=2, batches=1)
    assert command_lake.main(["stats", "--lake", "lake"]) == 0
    [*_, head, row] = capsys.readouterr().out.splitlines()
    assert head.split() == ["table", "rows", "files", "size", "from", "to", "up", "to", "record"]
    assert row.split()[:3] == ["observations", "80", "4"]
    assert row.split()[-3:] == ["2024-10-04", "2024-10-05", "2"]
    assert command_lake.main(["stats", "--lake", "lake", "--json"]) == 0
    [table] = json.loads(capsys.readouterr().out)["tables"]
    assert (table["name"], table["rows"], table["first"], table["sequence"]) == ("observations", 80, "2024-10-04", 2)


def test_the_lake_is_that_of_the_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(Lake(tmp_path / "spinney-data/lake"), days=1, batches=1)
    assert command_lake.main(["stats"]) == 0
    assert f"the lake in {tmp_path / 'spinney-data/lake'}" in capsys.readouterr().out
    assert command_lake.main(["stats", "--data", "spinney-data"]) == 0


def test_keeping_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Lake(tmp_path / "lake")
    fill(lake, days=4)
    for arguments, said in (
        (["compact"], "observations: 18 files joined into 6, 3 days ordered by place"),
        (["retain", "2"], "observations: 240 rows removed"),
        (["vacuum"], "observations: 0 files deleted"),
        (["vacuum", "--hours", "0"], "observations: 22 files deleted"),
    ):
        assert command_lake.main([*arguments, "--lake", "lake"]) == 0
        assert said in capsys.readouterr().err
    assert lake.state("observations").rows == 240


def test_a_backup_and_the_way_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(Lake(tmp_path / "lake"), days=1)
    assert command_lake.main(["export", "lake.tar", "--lake", "lake"]) == 0
    said = capsys.readouterr().err
    assert re.search(r"wrote lake.tar: .* KiB; observations: 120 rows", said)
    assert "not in it: what matching remembers" in said
    assert command_lake.main(["import", "lake.tar", "--lake", "lake"]) == 1
    assert "there is a lake in" in capsys.readouterr().err
    assert command_lake.main(["import", "lake.tar", "--lake", "other"]) == 0
    assert f"made the lake in {tmp_path / 'other'} of lake.tar; observations: 120 rows" in capsys.readouterr().err
    assert Lake(tmp_path / "other").sequence() == Lake(tmp_path / "lake").sequence()


@pytest.mark.parametrize("verb", [["stats"], ["compact"], ["vacuum"], ["retain", "3"], ["export", "x"]])
def test_where_there_is_no_lake_it_says_so_and_makes_none(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_lake.main([*verb, "--lake", "none"]) == 1
    said = capsys.readouterr().err
    assert (
        said
        == f"spinney lake: there is no lake in {tmp_path}/none: spinney pipeline makes one; --lake says where it is\n"
    )
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("verb", ["export", "import"])
def test_a_lake_in_an_object_store_is_not_carried_off(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_lake.main([verb, "lake.tar", "--lake", "s3://bucket/lake"]) == 1
    assert "s3://bucket/lake is in an object store" in capsys.readouterr().err


def test_an_object_store_that_cannot_be_reached_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [port] = free_ports(1)
    secrets = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "c", "AWS_ALLOW_HTTP": "true"}
    for name, value in {**secrets, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
        monkeypatch.setenv(name, value)
    assert command_lake.main(["stats", "--lake", "s3://bucket/lake"]) == 1
    assert "spinney lake: the lake s3://bucket/lake: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["retain", "0"], ["retain", "x"], ["vacuum", "--hours", "-1"], []])
def test_wrong_use_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command_lake.main(arguments)
    assert caught.value.code == 2


def test_sizes_are_for_people() -> None:
    assert [command_lake._size(count) for count in (0, 1023, 1536, 5 * 2**30, 3 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]
