"""`spinney cloud backup` and `restore`: everything that is kept, in one file."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from spinney.configuring import ConfigurationError

from .backup import BackupError, Manifest, make, opened, restore_files, restore_streams
from .data_dir import RUN_FILE, DataDir, DataDirError, holder
from .data_option import add_data_options, configuration_of
from .endpoints import nats_endpoints
from .log_errors import LogError
from .nats_log import NatsLog
from .nats_server import NatsPorts, NatsServer, NatsServerError
from .ports import Listener, resolve
from .service import Endpoints, read_run
from .settings import Settings
from .stream_copy import CopyError

_ERRORS = (BackupError, CopyError, ConfigurationError, DataDirError, NatsServerError, LogError, OSError)

BACKUP_EPILOG = """\
MQTT sessions are not in it: what the MQTT server holds for clients that are away. With --log, notifications that had
not been handed to the MQTT server are. The pipeline's lake is not: spinney lake export. What the pipeline remembers
for subscriptions of state and top-k is in neither: spinney lake export --help.

examples:
  spinney cloud backup spinney.backup
  spinney cloud backup spinney.backup --log --data /var/lib/spinney

exit codes: 0 done, 1 refused, 2 wrong use"""
RESTORE_EPILOG = """\
examples:
  spinney cloud restore spinney.backup
  spinney cloud restore spinney.backup --data /var/lib/spinney

exit codes: 0 done, 1 refused, 2 wrong use"""


def main(arguments: list[str]) -> int:
    """The command, the first argument being backup or restore; exit code 0 done, 1 refused."""
    verb, *rest = arguments
    parser = _restore_parser() if verb == "restore" else _backup_parser()
    options = parser.parse_args(rest)
    try:
        settings = configuration_of(options).settings
        asyncio.run(_restore(options, settings) if verb == "restore" else _backup(options, settings))
    except _ERRORS as error:
        print(f"spinney cloud {verb}: {error}", file=sys.stderr)
        return 1
    return 0


def _backup_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney cloud backup",
        description="Write subscriptions, announcements, users, secrets and the matcher's snapshots into one file, "
        "while the cloud runs or when it does not. Keep the file as you keep passwords.",
        epilog=BACKUP_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup, such as spinney.backup")
    parser.add_argument("--log", action="store_true", help="with the publications and notifications that are kept")
    add_data_options(parser)
    return parser


def _restore_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney cloud restore",
        description="Make a data directory of a backup. It must be empty or not be there yet.",
        epilog=RESTORE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a file that spinney cloud backup wrote")
    add_data_options(parser)
    return parser


# ---- backup -----------------------------------------------------------------------------------------------------


async def _backup(options: argparse.Namespace, settings: Settings) -> None:
    if not settings.data.is_dir():
        raise BackupError(f"there is no data directory {settings.data}")
    if not options.file.absolute().parent.is_dir():
        raise BackupError(f"there is no folder {options.file.absolute().parent} to write to")
    async with _log_of(settings) as log:
        manifest = await make(options.file, settings.data, log, with_log=options.log, say=_say)
    _say(f"wrote {options.file}: {options.file.stat().st_size:,} bytes{_what(manifest)}")


def _what(manifest: Manifest) -> str:
    return ", with the log" if manifest.with_log else ", without the log"


@asynccontextmanager
async def _log_of(settings: Settings) -> AsyncIterator[NatsLog]:
    """The log of a data directory: of the cloud that runs on it, else of a nats-server that we start for it."""
    if holder(settings.data) is not None:
        _, endpoints = read_run(settings.data / RUN_FILE)
        async with await NatsLog.connect(endpoints, name="backup") as log:
            yield log
        return
    with DataDir(settings.data) as data:
        async with _own_log(settings, data) as log:
            yield log


@asynccontextmanager
async def _own_log(settings: Settings, data: DataDir) -> AsyncIterator[NatsLog]:
    """The log of a data directory that we hold; clients cannot connect meanwhile."""
    if settings.nats.url:
        ports = None
        server = None
    else:
        [port] = resolve([Listener("nats-server", settings.nats.host, 0, "--nats-port")])
        ports = NatsPorts(port, None)
        server = NatsServer(settings, data, ports)
        await server.start()
    try:
        endpoints = Endpoints(
            mqtt_host="", mqtt_port=0, mqtt_kind="", http_port=0, **nats_endpoints(settings.nats, ports, data)
        )
        async with await NatsLog.connect(endpoints, name="backup") as log:
            yield log
    finally:
        if server is not None:
            await server.stop()


# ---- restore ----------------------------------------------------------------------------------------------------


async def _restore(options: argparse.Namespace, settings: Settings) -> None:
    if settings.nats.url:
        raise BackupError("restoring goes into our own nats-server: leave out --nats, and move its streams yourself")
    if settings.data.exists() and any(settings.data.iterdir()):
        raise BackupError(f"{settings.data} is not empty: choose another with --data, or move it away")
    was_there = settings.data.exists()
    where = (settings.data / RUN_FILE).parent
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        where.mkdir(mode=0o700)
        with opened(options.file, where) as (manifest, folder):
            await _fill(settings, manifest, folder)
    except BaseException:
        _clear(settings.data)  # nothing was in it: half a restored one must not be started
        if not was_there:
            settings.data.rmdir()
        raise
    _say(f"restored {options.file}{_what(manifest)} to {settings.data}; start it: spinney cloud --data {settings.data}")


async def _fill(settings: Settings, manifest: Manifest, folder: Path) -> None:
    restore_files(folder, settings.data)
    with DataDir(settings.data) as data:
        async with _own_log(settings, data) as log:
            await restore_streams(manifest, folder, log, settings, say=_say)


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _say(text: str) -> None:
    print(text, file=sys.stderr)
