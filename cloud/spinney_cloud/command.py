"""`spinney cloud`: the cloud broker on this machine, and the commands around it."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spinney.configuring import ConfigurationError
from spinney.logs import set_up_logging

from .configuration import KEYS, MISSING, Configuration, Key, configure, perhaps_flag

if TYPE_CHECKING:  # the other commands need none of it
    from .supervisor import Processes

logger = logging.getLogger(__name__)

FAILED = 1
USAGE_ERROR = 2

COMMANDS = {
    "user": ("users_command", "add, list, remove users; passwords and tokens"),
    "certs": ("certs_command", "make certificates for MQTT, HTTP and NATS"),
    "acl": ("acl_command", "write users and what they may do for mosquitto"),
    "conf": ("conf_command", "write a configuration for mosquitto"),
    "health": ("health_command", "say whether the cloud on this machine does its work"),
    "backup": ("backup_command", "save a data directory, also of a running cloud"),
    "restore": ("backup_command", "make a data directory from a backup"),
}

DESCRIPTION = """\
Run the cloud broker on this machine: receive publications and subscriptions by MQTT and HTTP, match, deliver.
It starts its own nats-server, unless --nats and --mqtt name existing servers. Ctrl-C stops it in order."""

EPILOG = """\
commands, each with a --help of its own:
{commands}

Each setting can also stand in the file (--http-port 80 is `port = 80` below `[http]`) and in the environment
(SPINNEY_CLOUD__HTTP__PORT=80). Flags win over the environment, and that wins over the file. SIGHUP reads all of
them again. Times are written as 90, 10m, 7d, sizes as 4096, 512MiB. Secrets are never flags: they are in files.

examples:
  spinney cloud                                    everything on loopback, data in ./spinney-data
  spinney cloud --data /var/lib/spinney --http-port 0 --mqtt-port 0
  spinney cloud --mqtt mqtt://localhost:1883       clients connect to an existing mosquitto, MQTT 5 ones too
  spinney cloud --config cloud.toml --check        say what would be, and whether it holds

exit codes: 0 stopped in order, 1 failed, 2 wrong use or configuration, 130 killed by a second Ctrl-C"""


def main(arguments: list[str], *, processes: Processes | None = None) -> int:
    """The command; exit code 0 done, 1 failed, 2 wrong use or configuration, 130 killed by a second Ctrl-C.

    `processes`: what is run, if not what the supervisor has.
    """
    if arguments and arguments[0] in COMMANDS:
        return _run_command(*arguments)
    options, flags, problems = parse(arguments)
    try:
        configuration = _configure(options, flags, problems)
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"spinney cloud: {problem}", file=sys.stderr)
        return USAGE_ERROR
    if options.check:
        print("\n".join([*configuration.lines(), "ok"]))
        return 0
    return run(configuration, lambda: _configure(options, flags, []), processes)


def run(configuration: Configuration, reread: Callable[[], Configuration], processes: Processes | None) -> int:
    """Run the cloud until it is told to stop."""
    from .data_dir import DataDirError
    from .log_errors import LogError
    from .mqtt_kind import MqttRefusedError
    from .nats_server import NatsServerError
    from .ports import PortsError
    from .supervisor import NAME, Processes, Supervisor
    from .users import UsersError

    async def supervise() -> int:
        return await Supervisor(configuration, reread, processes or Processes()).run()

    set_up_logging(NAME, configuration.settings.logging)
    try:
        return asyncio.run(supervise())
    except (DataDirError, LogError, MqttRefusedError, NatsServerError, PortsError, UsersError, OSError) as error:
        for line in str(error).splitlines():
            if configuration.settings.logging.format == "json":
                logger.critical(line)
            else:
                print(f"spinney cloud: {line}", file=sys.stderr)
        return FAILED


def parse(arguments: list[str]) -> tuple[argparse.Namespace, dict[str, Any], list[str]]:
    """The options, the flags by key, and what is wrong already."""
    options, strange = _parser().parse_known_args(arguments)
    flags = {name: getattr(options, name) for name in KEYS}
    problems = list(_strange(strange))
    if options.config is MISSING:
        problems.append("--config: needs a value: a path")
        options.config = None
    return options, flags, problems


def _run_command(name: str, *arguments: str) -> int:
    module, _ = COMMANDS[name]
    # `restore` is a word of the same module as `backup`
    given = [name, *arguments] if sum(module == each for each, _ in COMMANDS.values()) > 1 else [*arguments]
    status = importlib.import_module(f"spinney_cloud.{module}").main(given)
    assert isinstance(status, int)
    return status


def _configure(options: argparse.Namespace, flags: dict[str, Any], problems: list[str]) -> Configuration:
    file = Path(options.config) if options.config else None
    return configure(flags, os.environ, file, to_run=True, problems=problems)


def _strange(arguments: list[str]) -> list[str]:
    """What is wrong with arguments that are none. What follows an unknown flag may be a secret: it is not shown."""
    problems = []
    after_flag = False
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag.startswith("-"):
            problems.append(f"{flag}: there is no such flag{perhaps_flag(flag)}")
        elif not after_flag:
            problems.append(f"{argument}: is no command; commands are {', '.join(COMMANDS)}")
        after_flag = flag.startswith("-") and flag == argument
    return problems


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney cloud",
        usage="spinney cloud [--data DIR] [--config FILE] [--check] [SETTING ...] | COMMAND ...",
        description=DESCRIPTION,
        epilog=EPILOG.format(commands="\n".join(f"  {name:<9}{text}" for name, (_, text) in COMMANDS.items())),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", nargs="?", const=MISSING, help="a TOML file with settings")
    parser.add_argument(
        "--check", action="store_true", help="print the resolved settings and whether they hold; run nothing"
    )
    groups: dict[str, Any] = {"": parser}
    for key in KEYS.values():
        section = key.name.rpartition(".")[0]
        if section not in groups:
            groups[section] = parser.add_argument_group(f"[{section}]")
        _add(groups[section], key)
    return parser


def _add(group: Any, key: Key) -> None:
    names = dict.fromkeys((key.flag, key.long_flag))
    text = f"{key.help} " if key.help else ""
    default = f" (default: {key.shown(key.default)})" if key.default is not None else ""
    is_switch = key.kind is bool
    group.add_argument(
        *names,
        dest=key.name,
        nargs="?",
        const=True if is_switch else MISSING,
        metavar=key.name.rpartition(".")[2].upper(),
        help=f"{text}{key.expected if not key.help else ''}{default}".replace("%", "%%"),
    )


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Values look required, which they are; it is only that a missing one is told with all other mistakes."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        is_switch = action.const is True
        return "[true|false]" if is_switch else str(action.metavar or default_metavar)
