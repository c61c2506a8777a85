"""A pipeline's process, in this one: it waits for the log, holds with a reason, and goes on by itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kit import city, direct, for_pipeline, make_log, purge, put, server_of, told, wait_until
from prometheus_client import generate_latest
from pyspark.sql import SparkSession
from servers import NatsServer

from spinney_cloud.bucket import stream_of
from spinney_cloud.names import READERS
from spinney_cloud.pipeline import running_loop
from spinney_cloud.pipeline.ingest import IngestError, Plan
from spinney_cloud.pipeline.lake import DEAD_LETTERS, Lake
from spinney_cloud.pipeline.maintenance import Policy
from spinney_cloud.pipeline.matching_query import MatchingPlan
from spinney_cloud.pipeline.running import Job, PlaceError, Run, Spark, held
from spinney_cloud.pipeline.running_loop import Pipeline
from spinney_cloud.pipeline.scan import LogTrimmed
from spinney_cloud.pipeline.subscriptions import Where
from spinney_cloud.positions import Position


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at, or tried again, now and then."""
    for name in ("LOOK_SECONDS", "WAIT_SECONDS", "AGAIN_SECONDS", "PROGRESS_SECONDS"):
        monkeypatch.setattr(running_loop, name, 0.1)


def job_in(tmp_path: Path, nats: NatsServer, *, free_floor: int = 0, **plan: object) -> Job:
    made = Plan(server_of(nats), trigger_seconds=0, **plan)  # type: ignore[arg-type]  # the caller names real fields
    return Job(str(tmp_path / "lake"), made, None, Policy(), Spark(tmp_path / "spark"), free_floor)


class Running:
    """A pipeline in a thread of its own. Its `job` may be changed while it runs."""

    def __init__(self, spark: SparkSession, nats: NatsServer, job: Job, *, persistent: bool) -> None:
        self.job = job
        self.failure: Exception | None = None
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self.pipeline = Pipeline(
            server_of(nats), lambda: self.job, self._stopping, persistent=persistent, where="here", session=spark
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self.pipeline.run())
        except Exception as error:  # noqa: BLE001  # the test looks at it
            self.failure = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def stop(self) -> None:
        if self.thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self.thread.join(60)
        assert not self.thread.is_alive()

    def until(self, holds: Callable[[], object], what: str) -> None:
        wait_until(lambda: holds() or self.failure, what)
        assert self.failure is None

    def rows(self) -> int:
        return Lake(self.job.lake).state("observations").rows if Lake(self.job.lake).names() else 0

    @property
    def why(self) -> str:
        return str(self.pipeline.health().get("why", ""))


@contextmanager
def running(spark: SparkSession, nats: NatsServer, job: Job, *, persistent: bool = True) -> Iterator[Running]:
    one = Running(spark, nats, job, persistent=persistent)
    try:
        yield one
    finally:
        one.stop()


def test_a_log_that_is_not_there_yet_is_waited_for_and_one_that_goes_away_too(
    spark: SparkSession, nats: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with running(spark, nats, job_in(tmp_path, nats)) as one:
        one.until(lambda: "the server has no stream" in one.why, "it waits for the stream")
        assert not one.pipeline.health()["ready"]
        make_log(nats)
        put(nats, city(3))
        one.until(lambda: one.rows() == 60 and not one.why, "the log is in the lake")
        nats.kill()
        nats.start()
        put(nats, city(2, first=3))
        one.until(lambda: one.rows() == 100, "it goes on")
        one.until(lambda: one.pipeline.health()["sequence"] == 5, "it says so")
        one.until(lambda: "the lake has all 5 records of the log; " in caplog.text, "a line of it")
    text = caplog.text
    assert text.count("waiting for here: the server has no stream SPINNEY_LOG") == 1
    assert "the log of here goes into the lake" in text


def test_told_to_stop_while_it_waits_it_stops(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    nats.kill()
    with running(spark, nats, job_in(tmp_path, nats)) as one:
        one.until(lambda: "Connection refused" in one.why, "it waits")
    assert one.failure is None


def test_beside_a_broker_a_trimmed_log_is_said_once_and_tried_until_somebody_mends_it(
    spark: SparkSession, nats: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_log(nats)
    put(nats, city(6))
    Lake(tmp_path / "lake").advance("observations", 2)
    purge(nats, 4)
    with running(spark, nats, job_in(tmp_path, nats)) as one:
        one.until(lambda: "records 3 to 4 were purged unread" in one.why, "the reason")
        assert "--skip-missing" in one.why
        attempts = one.pipeline._run
        one.until(lambda: one.pipeline._run is not attempts, "it is tried again")
        one.job = job_in(tmp_path, nats, skip_missing=True)
        one.until(lambda: one.rows() == 40 and one.pipeline.health()["ready"], "it goes on")
        one.job = job_in(tmp_path, nats)
    assert caplog.text.count("were purged unread") == 1
    [gap] = Lake(tmp_path / "lake").dataset(DEAD_LETTERS).to_table().to_pylist()
    assert (gap["log_seq"], gap["reason"]) == (4, "records 3 to 4 were purged before they were read")
    with direct(nats) as log:
        oldest = log.first_from("SPINNEY_LOG", 5)
    assert oldest is not None
    assert gap["arrival"] == oldest.time  # by the log's clock, whatever ours says


def test_started_by_hand_it_ends_with_the_reason(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    put(nats, city(6))
    Lake(tmp_path / "lake").advance("observations", 2)
    purge(nats, 4)
    with running(spark, nats, job_in(tmp_path, nats), persistent=False) as one:
        wait_until(lambda: one.failure, "the end")
    assert isinstance(one.failure, LogTrimmed)
    assert Lake(tmp_path / "lake").sequence() == 2


def test_a_full_disk_stops_it_with_the_reason_and_it_goes_on_once_there_is_room(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    make_log(nats)
    put(nats, city(2))
    with running(spark, nats, job_in(tmp_path, nats, free_floor=2**62)) as one:
        one.until(lambda: "bytes are free on the disk of the lake" in one.why, "the reason")
        assert one.rows() == 0
        one.job = job_in(tmp_path, nats)
        one.until(lambda: one.rows() == 40, "it goes on")


def test_a_lake_has_one_pipeline(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    code = (
        "import sys; from spinney_cloud.pipeline.running import held\n"
        "with held(sys.argv[1]):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lake")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdin
        assert other.stdout.readline() == "held\n"
        with running(spark, nats, job_in(tmp_path, nats)) as one:
            one.until(lambda: f"is in use by process {other.pid}" in one.why, "the reason")
            other.stdin.close()
            put(nats, city(1))
            one.until(lambda: one.rows() == 20, "it goes on when the other has ended")


@pytest.mark.parametrize("what", ["a file", "other things"])
def test_a_place_that_is_no_lake_is_refused(tmp_path: Path, what: str) -> None:
    place = tmp_path / "lake"
    if what == "a file":
        place.write_text("")
    else:
        (place / "photos").mkdir(parents=True)
    with pytest.raises(PlaceError, match=r"is a file|holds other things \(photos\)"), held(str(place)):
        pass
    assert not (place / "lock").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    place = tmp_path / "there" / "lake"
    (tmp_path / "there").write_text("a file")
    with pytest.raises(PlaceError, match=f"the lake {place} cannot be used: "), held(str(place)):
        pass


def test_nobody_is_kept_out_of_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with held("s3://bucket/lake"), held("s3://bucket/lake"):
        pass
    assert not list(tmp_path.iterdir())


def test_what_the_log_has_now_goes_into_the_lake_and_that_is_the_end(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    make_log(nats)
    put(nats, city(4))
    job = replace(job_in(tmp_path, nats, once=True), windows=True)
    with running(spark, nats, job, persistent=False) as one:
        one.thread.join(60)
        assert one.rows() == 80
    assert one.failure is None
    assert one.pipeline._run is not None
    assert one.pipeline._run.maintenance is not None
    assert one.pipeline._run.maintenance.done.rounds == 1
    assert one.pipeline._run.windows is not None
    assert one.pipeline._run.windows.done.steps > 0
    assert b"spinney_pipeline_rows_total 80.0" in generate_latest(one.pipeline.metrics)


def test_the_log_is_kept_for_the_slower_part(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    end = put(nats, city(3))
    with running(spark, nats, job_in(tmp_path, nats)) as one:
        one.until(lambda: one.pipeline.health()["ready"], "it works")
        assert one.pipeline._run is not None
        ingest = one.pipeline._run.ingest
        assert ingest is not None
        one.until(lambda: (found := position(nats)) and found.sequence == end, "the keeper is told")
        ingest.beside = lambda: (1, 1e9)
        ingest._floor._marks.clear()
        put(nats, city(1, first=3))
        one.until(lambda: (found := position(nats)) and found.sequence == end + 1, "the keeper is told again")
        assert list(ingest._floor._marks) == [(1, 1e9)]


@pytest.mark.slow
def test_matching_is_a_part_of_it(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    put(nats, [for_pipeline("hot", "NO2 > 50"), *city(2)])
    job = job_in(tmp_path, nats)
    plan = MatchingPlan(Where(server_of(nats), job.lake), str(tmp_path / "matching"), trigger_seconds=0)
    with running(spark, nats, replace(job, matching=plan)) as one:
        one.until(lambda: one.pipeline.health()["ready"], "both have begun")
        metrics = one.pipeline.metrics
        one.until(lambda: "matching_subscriptions 1.0" in generate_latest(metrics).decode(), "it has the subscription")
        one.until(lambda: told(nats), "it tells")
        one.until(lambda: one.rows() == 40, "the lake is filled, too")
    assert {note.sid for each in told(nats) for note in each.notes} == {"hot"}


def position(nats: NatsServer) -> Position | None:
    with direct(nats) as log:
        value = log.newest_in_bucket(stream_of(READERS), f"$KV.{READERS}.pipeline")
    return None if value is None else Position.decode(value)


class Stub:
    """A part that does as it is told."""

    def __init__(self, *, fails: str = "") -> None:
        self.stopped = threading.Event()
        self.fails = fails
        self.begun = self.forgotten = False

    def start(self) -> None:
        self.begun = True
        if self.fails == "start":
            raise IngestError("cannot start")

    def wait(self) -> None:
        if self.fails == "wait":
            raise IngestError("cannot go on")
        self.forgotten = not self.stopped.wait(60)

    def stop(self) -> None:
        self.stopped.set()


@pytest.mark.parametrize("fails", ["start", "wait"])
@pytest.mark.parametrize("who", [0, 1, 2])
def test_the_trouble_of_one_part_ends_all(tmp_path: Path, nats: NatsServer, fails: str, who: int) -> None:
    parts = [Stub(fails=fails if number == who else "") for number in range(3)]
    run = Run(job_in(tmp_path, nats), lambda: pytest.fail("no session is needed"))
    with pytest.raises(IngestError, match="cannot"):
        run._live_all(parts[:2], parts[2:])
    assert not run.working
    assert all(part.stopped.is_set() for part in parts if part.begun and part is not parts[who])
    assert not any(part.forgotten for part in parts)


def test_what_is_stopped_before_it_began_does_not_begin(tmp_path: Path, nats: NatsServer) -> None:
    parts = [Stub(), Stub()]
    run = Run(job_in(tmp_path, nats), lambda: pytest.fail("no session is needed"))
    run.stop()
    run._live_all(parts[:1], parts[1:])
    assert not any(part.begun for part in parts)
