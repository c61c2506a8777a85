"""`spinney pipeline`: the log into the lake, beside a cloud that runs on this machine, or from any NATS server."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from spinney.configuring import ConfigurationError
from spinney.logs import set_up_logging

from ..configuration import CONFIG_VARIABLE, KEYS, Given, Key, check, from_environment, from_file
from ..data_dir import RUN_FILE
from ..log_errors import LogError
from ..service import read_run
from ..settings import Log, Settings
from .direct_get import LogServer
from .ingest import JavaGoneError
from .java import seek_java
from .running import Job, job_of
from .running_cluster import CLASSES, become
from .running_loop import NAME, NEEDS_HELP, Pipeline
from .session import is_local, leave

logger = logging.getLogger(__name__)

FAILED, USAGE_ERROR, KILLED = 1, 2, 130

_OTHERS = {
    "data": "--data",
    "nats.url": "--nats",
    "nats.user": "--nats-user",
    "nats.password_file": "--nats-password-file",
    "nats.tls.ca": "--nats-tls-ca",
    "nats.tls.certificate": "--nats-tls-certificate",
    "nats.tls.key": "--nats-tls-key",
    "log.duplicate_window": "--log-duplicate-window",
    "log.content_window": "--log-content-window",
    "log.free_disk_floor": "--log-free-disk-floor",
    "logging.level": "--log-level",
    "logging.format": "--log",
}
FLAGS = {
    name: _OTHERS.get(name) or "--" + name.removeprefix("pipeline.").replace("_", "-")
    for name in KEYS
    if name in _OTHERS or (name.startswith("pipeline.") and name != "pipeline.run")
}
"""By setting; those of the section `pipeline` need no prefix here."""

DESCRIPTION = """\
Keep the publications of a cloud broker in a lake of Delta tables, each reading once, as they come. It goes on where
the lake ends, whatever was killed when. Ctrl-C ends it after the batch that is under way."""

EPILOG = """\
The log is that of the cloud on --data (waited for if it does not run yet), or of the NATS server of --nats.
Settings can also stand in the cloud's file (`trigger = "2s"` below `[pipeline]`, --config FILE) and in the environment
(SPINNEY_CLOUD__PIPELINE__TRIGGER=2s). Have the log wait for its pipeline: log.pipeline = true, or spinney cloud
--with-pipeline, which runs all this beside the broker.

examples:
  spinney pipeline                                        beside the cloud in ./spinney-data
  spinney pipeline --lake /srv/lake --retain-days 365
  spinney pipeline --once                                 what the log has now, then end: for cron
  spinney pipeline --nats nats://10.0.0.5:4222 --nats-user reader --nats-password-file secret.txt --lake /srv/lake
  spinney pipeline --lake s3://bucket/lake                in an object store: AWS_... variables say how
  spinney pipeline --master spark://10.0.0.9:7077 --lake /shared/lake
  spinney pipeline master --host 10.0.0.9                 a cluster of our own: its master, and on other machines
  spinney pipeline worker spark://10.0.0.9:7077           its workers; options are those of Spark
  spinney pipeline connect --master spark://10.0.0.9:7077 Spark Connect on it, for notebooks that read

What is in the lake: spinney lake stats. Reading it: cloud/spinney_cloud/pipeline/README.md

exit codes: 0 done, 1 failed, 2 wrong use or configuration, 130 killed by a second Ctrl-C"""


class Wanted(NamedTuple):
    """What a command line asks for."""

    options: argparse.Namespace
    settings: Settings
    server: LogServer
    where: str
    """The log, for people."""

    def job(self) -> Job:
        """What to do, also by what the cloud says of its log, if it is one of this machine."""
        job = job_of(self.settings, _log_of(self.settings), self.server)
        spark = replace(job.spark, master=self.options.master, conf=dict(self.options.conf))
        once = self.options.once
        matching = job.matching and replace(job.matching, once=once)
        return replace(job, spark=spark, plan=replace(job.plan, once=once), matching=matching)


def main(arguments: list[str]) -> int:
    """The command; exit code 0 done, 1 failed, 2 wrong use or configuration, 130 killed by a second Ctrl-C."""
    if arguments[:1] and arguments[0] in CLASSES:
        become(*arguments)
    options = _parser().parse_args(arguments)
    try:
        wanted = _wanted(options)
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"spinney pipeline: {problem}", file=sys.stderr)
        return USAGE_ERROR
    set_up_logging(NAME, wanted.settings.logging)
    try:
        if options.check:
            print("\n".join(_described(wanted)))
            return 0
        asyncio.run(_run(wanted))
    except (*NEEDS_HELP, LogError, OSError) as error:
        print(f"spinney pipeline: {error}", file=sys.stderr)
        if isinstance(error, JavaGoneError):
            leave(FAILED)
        return FAILED
    return 0


async def _run(wanted: Wanted) -> None:
    stopping = asyncio.Event()

    def ask_to_stop() -> None:
        if stopping.is_set():
            os._exit(KILLED)  # Java ends with us; what is not in the lake yet is read again
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ask_to_stop)
    ready = partial(print, f"ready: {wanted.where} into {wanted.job().lake}", flush=True)
    pipeline = Pipeline(wanted.server, wanted.job, stopping, where=wanted.where, on_ready=ready)
    await pipeline.run()
    logger.info("stopped")


def _described(wanted: Wanted) -> Iterator[str]:
    home, origin, version = seek_java()
    job = wanted.job()
    yield f"log: {wanted.where}"
    yield f"lake: {job.lake}"
    yield f"Spark: {job.spark.master or f'here, {job.spark.cores} cores, heap {job.spark.heap}'}"
    yield f"matching: {job.matching.checkpoint if job.matching else 'off'}"
    yield f"Java: {version}, {home} ({origin})"
    kept = f"{job.policy.retain_days} days" if job.policy.retain_days else "everything"
    yield f"keeps: {kept}; looked after every {job.policy.every_seconds:g} s"
    yield "ok"


# ---- what is wanted


def _wanted(options: argparse.Namespace) -> Wanted:
    if (options.master or "").startswith("sc://"):
        raise ConfigurationError(
            [
                f"--master {options.master}: over Spark Connect the lake and the log can be read, but a pipeline is a "
                "driver itself: give it the cluster's master, spark://host:port or k8s://https://host:port"
            ]
        )
    settings = _settings(options)
    own = settings.pipeline
    if not is_local(options.master) and "://" in settings.lake and own.matching and own.checkpoints is None:
        raise ConfigurationError(
            [
                f"--master {options.master} with the lake {settings.lake} needs --checkpoints: a folder that all "
                "machines of the cluster share, or a URL that their Spark can write; matching keeps its state there"
            ]
        )
    return Wanted(options, settings, *_server(settings))


def _settings(options: argparse.Namespace) -> Settings:
    """Flags win over the environment, and that over the file."""
    problems: list[str] = []
    file = options.config or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    given = [
        *(from_file(file, problems) if file else ()),
        *from_environment(os.environ, problems),
        *(
            Given(KEYS[name], value, flag, Path.cwd())
            for name, flag in FLAGS.items()
            if (value := getattr(options, name)) is not None
        ),
    ]
    return check({each.key.name: each for each in given}, problems, to_run=False).settings


def _server(settings: Settings) -> tuple[LogServer, str]:
    """Where the log is, for programs and for people."""
    nats = settings.nats
    if nats.url is None:
        return LogServer(run=str(settings.data / RUN_FILE)), f"the cloud on {settings.data}"
    files = (nats.password_file, nats.tls.ca, nats.tls.certificate, nats.tls.key)
    password, ca, certificate, key = (None if file is None else str(file) for file in files)
    places = ", ".join(urlsplit(url.strip()).netloc.rpartition("@")[2] for url in nats.url.split(","))
    return LogServer(nats.url, nats.user, password, ca, certificate, key), places


def _log_of(settings: Settings) -> Log:
    """What is a duplicate must be the same for all."""
    if settings.nats.url is not None:
        return settings.log
    try:
        cloud, _ = read_run(settings.data / RUN_FILE)
    except (OSError, ValueError):  # it has not run yet, or was another version
        return settings.log
    if not cloud.log.pipeline:
        logger.warning(
            "the cloud does not wait for its pipeline: what it purges unread will be missing. Start it with "
            "--log-pipeline, or with --with-pipeline instead of this"
        )
    return cloud.log


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney pipeline",
        usage="spinney pipeline [--data DIR | --nats URL] [--lake PLACE] [OPTION ...] | master ... | worker URL ...",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the cloud's configuration file")
    parser.add_argument("--check", action="store_true", help="say what would be, and run nothing")
    parser.add_argument("--once", action="store_true", help="end when all is in the lake that the log has now")
    spark = parser.add_argument_group("Spark")
    spark.add_argument("--master", metavar="URL", help="of a cluster (default: Spark runs here)")
    spark.add_argument(
        "--conf", metavar="KEY=VALUE", type=_setting, action="append", default=[], help="a setting of Spark"
    )
    groups = {"pipeline": parser.add_argument_group("pipeline"), "": parser.add_argument_group("the log, and others")}
    for name, flag in FLAGS.items():
        _add(groups["pipeline" if name.startswith("pipeline.") else ""], KEYS[name], flag)
    return parser


def _add(group: argparse._ArgumentGroup, key: Key, flag: str) -> None:
    default = f" (default: {key.shown(key.default)})" if key.default is not None else ""
    is_switch = key.kind is bool
    group.add_argument(
        flag,
        dest=key.name,
        nargs="?" if is_switch else None,
        const=True if is_switch else None,
        metavar="true|false" if is_switch else key.name.rpartition(".")[2].upper(),
        help=f"{key.help}{default}".replace("%", "%%"),
    )


def _setting(text: str) -> Sequence[str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is no setting of Spark: spark.KEY=VALUE")
    return key, value
