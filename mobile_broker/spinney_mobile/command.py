"""`spinney mobile`: the mobile broker on this machine, and the commands around it."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from spinney.configuring import ConfigurationError

from .configuration import CONFIG_VARIABLE, KEYS, MISSING, Configuration, Key, configure, perhaps_flag
from .data_dir import DataDirError, NotRunning, ask
from .setting_types import expected, help_of, shown

DONE, FAILED, USAGE_ERROR = 0, 1, 2
INTERRUPTED: Final = 128 + signal.SIGINT
LONGEST_SCAN_SECONDS: Final = 3600.0
SERVICE_DATA: Final = Path("/var/lib/spinney-mobile")
"""Where the system's unit has its data."""

DESCRIPTION = """\
A mobile broker gathers readings from the sensors around it, by Bluetooth, MQTT, serial ports and from files, and
sends up to the cloud what somebody has subscribed to. It runs on a Raspberry Pi, a laptop, a phone."""

OVERVIEW = """\
commands, each with a --help of its own:
  run              run the broker, until Ctrl-C or SIGTERM
  seen             list all devices that can be heard, whether taken or not
  top              look at a running broker in this terminal
  status           the same as a few lines, or as JSON
  explain          why a reading is wanted or not
  doctor           what stands in the way, and what to do about it
  config           print a commented sample configuration, or check one
  install-service  have systemd run it

examples, the first steps first:
  spinney mobile doctor
  spinney mobile run --cloud mqtt://cloud.example:1883
  spinney mobile run --send all --home-assistant-url mqtt://homeassistant.local

exit codes: 0 done, 1 failed, 2 wrong use or configuration; some commands name more
"""

EXIT_CODES: Final = "exit codes: 0 done, 1 failed, 2 wrong use or configuration\n"

SETTINGS = """\
Each setting can also stand in the file (--cloud-url X is `url = "X"` below `[cloud]`) and in the environment
(SPINNEY_MOBILE__CLOUD__URL=X). Flags win over the environment, and that wins over the file. Devices, acquirers, rules
and subscriptions are in the file alone: `spinney mobile config` shows how. Passwords are never flags: they are in
files. SIGHUP reads all of it again: devices, acquirers, subscriptions and logging change at once.
"""


def main(arguments: list[str]) -> int:
    """The command; exit code 0 done, 1 failed, 2 wrong use or configuration, 75 an adapter was lost."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(f"usage: spinney mobile COMMAND [ARGUMENTS]\n\n{DESCRIPTION}\n\n{OVERVIEW}", end="")
        return DONE
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"spinney mobile: no command {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return USAGE_ERROR
    try:
        return COMMANDS[name](rest)
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"spinney mobile {name}: {problem}", file=sys.stderr)
        return USAGE_ERROR
    except (DataDirError, NotRunning) as error:
        print(f"spinney mobile {name}: {error}", file=sys.stderr)
        return FAILED
    except ModuleNotFoundError as error:
        remedy = "install the extra: pip install 'spinney[mobile]'"
        print(f"spinney mobile {name}: {error.name} is not installed; {remedy}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


# ---- what all commands share ------------------------------------------------------------------------------------


class _Command:
    """A command's parser, to which the settings belong as well."""

    def __init__(self, name: str, description: str, examples: str, *, all_settings: bool = False) -> None:
        self.parser = argparse.ArgumentParser(
            prog=f"spinney mobile {name}",
            usage=f"spinney mobile {name} [OPTION ...]",
            description=description,
            epilog=f"examples:\n{examples}" + (f"\n{SETTINGS}" if all_settings else ""),
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        self.parser.add_argument("--config", metavar="FILE", nargs="?", const=MISSING, help="a TOML file with settings")
        groups: dict[str, Any] = {"": self.parser}
        for key in KEYS.values():
            section = key.name.rpartition(".")[0]
            if section not in groups:
                groups[section] = self.parser.add_argument_group(f"[{section}]") if all_settings else self.parser
            _add(groups[section], key, shows=all_settings or key.name == "data")

    def parse(self, arguments: list[str]) -> tuple[argparse.Namespace, Callable[[], Configuration]]:
        """The options, and how to read the configuration."""
        options, strange = self.parser.parse_known_args(arguments)
        problems = list(_strange(strange))
        if options.config is MISSING:
            problems.append("--config: needs a value: a path")
            options.config = None
        flags = {name: getattr(options, name) for name in KEYS}
        file = Path(options.config) if options.config else None
        return options, lambda: configure(flags, os.environ, file, problems=problems)


def _add(group: Any, key: Key, *, shows: bool) -> None:
    text = help_of(key.section)[key.name.rpartition(".")[2]]
    default = f" (default: {shown(key.type, _plain(key.default))})" if key.default is not None else ""
    is_switch = key.type is bool
    group.add_argument(
        *dict.fromkeys((key.flag, key.long_flag)),
        dest=key.name,
        nargs="?",
        const="true" if is_switch else MISSING,
        metavar=key.name.rpartition(".")[2].upper(),
        help=f"{text} [{expected(key.type)}]{default}".replace("%", "%%") if shows else argparse.SUPPRESS,
    )


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _strange(arguments: list[str]) -> list[str]:
    """What is wrong with arguments that are none. What follows an unknown flag may be a secret: it is not shown."""
    problems = []
    after_flag = False
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag.startswith("-"):
            problems.append(f"{flag}: there is no such flag{perhaps_flag(flag)}")
        elif not after_flag:
            problems.append(f"{argument}: is not expected here")
        after_flag = flag.startswith("-") and flag == argument
    return problems


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Values look required, which they are; it is only that a missing one is told with all other mistakes."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        is_switch = action.const == "true"
        return "[true|false]" if is_switch else str(action.metavar or default_metavar)


def _where(configuration: Configuration) -> Path:
    """The data directory of the broker that is meant: the service's, if none was named and none is here."""
    data = configuration.settings.data
    if "data" in configuration.sources and configuration.sources["data"] != "default":
        return data
    return SERVICE_DATA if not (data / "lock").exists() and SERVICE_DATA.exists() else data


# ---- the commands -----------------------------------------------------------------------------------------------


def run(arguments: list[str]) -> int:
    """Run the broker."""
    command = _Command(
        "run",
        "Run the mobile broker on this machine, until Ctrl-C or SIGTERM. A second one ends it at once.",
        "  spinney mobile run                                  Bluetooth, for the cloud on this machine\n"
        "  spinney mobile run --cloud mqtts://cloud.example --cloud-user roof --cloud-password-file roof.txt\n"
        "  spinney mobile run --config mobile.toml --place-kind fixed --place-lat 45.81 --place-long 15.97\n"
        "  spinney mobile run --send all --home-assistant-url mqtt://homeassistant.local\n\n"
        "exit codes: 0 stopped, 1 failed, 2 wrong configuration, 75 an adapter was lost (systemd starts it again)\n",
        all_settings=True,
    )
    _, reread = command.parse(arguments)
    configuration = reread()
    from .running import run as run_broker

    return run_broker(configuration, reread)


def seen(arguments: list[str]) -> int:
    """List devices."""
    command = _Command(
        "seen",
        "List every device that can be heard, before any filter: as a running broker has heard them, or by scanning.",
        "  spinney mobile seen\n"
        "  spinney mobile seen --seconds 30 --scan    scan, though a broker runs\n"
        "  spinney mobile seen --json | jq '.[].address'\n\n"
        f"{EXIT_CODES}",
    )
    command.parser.add_argument("--seconds", type=float, default=10.0, help="to scan for (default: %(default)s)")
    command.parser.add_argument("--scan", action="store_true", help="scan, even if a broker runs that could be asked")
    command.parser.add_argument("--json", action="store_true", help="as JSON")
    options, reread = command.parse(arguments)
    if not 0 < options.seconds <= LONGEST_SCAN_SECONDS:
        raise ConfigurationError([f"--seconds: expected a number above 0, up to {LONGEST_SCAN_SECONDS:g}"])
    configuration = reread()
    from . import listing

    found = None
    if not options.scan:
        found = _asked(_where(configuration), "/seen")
    if found is None:
        print(f"no broker runs here: scanning for {options.seconds:g} s", file=sys.stderr)
        found, failed = asyncio.run(listing.scan(configuration.settings, options.seconds))
        for problem in failed:
            print(problem, file=sys.stderr)
    print(json.dumps(found, indent=1, ensure_ascii=False) if options.json else listing.devices(found))
    return DONE


def _asked(data: Path, path: str) -> Any:
    """What a running broker answers; None if none runs."""
    try:
        return ask(data, path)
    except NotRunning:
        return None


def top(arguments: list[str]) -> int:
    """Look at a running broker."""
    command = _Command(
        "top",
        "Look at a running broker in this terminal: sources, signal, battery, what is wanted, what is sent and spared,"
        " and notifications of your own subscriptions. Keys are named at the bottom.",
        f"  spinney mobile top\n  spinney mobile top --data /var/lib/spinney-mobile\n\n{EXIT_CODES}",
    )
    _, reread = command.parse(arguments)
    data = _where(reread())
    from .top import Top

    ask(data, "/status")  # says at once when nobody is there
    Top(lambda: _status(data)).run()
    return DONE


def _status(data: Path) -> Mapping[str, Any]:
    answer = ask(data, "/status")
    assert isinstance(answer, dict)
    return answer


def status(arguments: list[str]) -> int:
    """A few lines."""
    command = _Command(
        "status",
        "What a running broker does, in a few lines.",
        "  spinney mobile status\n"
        "  spinney mobile status --json | jq .counts\n\n"
        "exit codes: 0 it runs and reaches its cloud, 1 it does not run, 3 it runs and does not reach its cloud\n",
    )
    command.parser.add_argument("--json", action="store_true", help="all of it, as JSON")
    options, reread = command.parse(arguments)
    answer = _status(_where(reread()))
    from . import listing

    print(json.dumps(answer, indent=1, ensure_ascii=False) if options.json else listing.summary(answer))
    return DONE if answer["uplink"]["connected"] else NO_CLOUD


NO_CLOUD: Final = 3
"""Exit code of `status`: it runs, and does not reach its cloud."""


def explain(arguments: list[str]) -> int:
    """Why, or why not."""
    command = _Command(
        "explain",
        "Why a running broker sends a reading up or not: each active filter, part by part.",
        "  spinney mobile explain --source a4c138000001\n"
        '  spinney mobile explain --publication \'{"source": "m7", "NO2": 57}\'\n\n'
        f"{EXIT_CODES}",
    )
    command.parser.add_argument("--source", help="its newest reading")
    command.parser.add_argument("--publication", metavar="JSON", help="any reading")
    command.parser.add_argument("--json", action="store_true", help="as JSON")
    options, reread = command.parse(arguments)
    question: dict[str, Any] = {"source": options.source}
    problems = []
    if (options.source is None) == (options.publication is None):
        problems.append("give --source or --publication")
    elif options.publication is not None:
        try:
            question = {"publication": json.loads(options.publication)}
        except ValueError as error:
            problems.append(f"--publication: not JSON: {error}")
    if problems:
        raise ConfigurationError(problems)
    answer = ask(_where(reread()), "/explain", question)
    from . import listing

    print(json.dumps(answer, indent=1, ensure_ascii=False) if options.json else listing.explanation(answer))
    return DONE


def doctor(arguments: list[str]) -> int:
    """What stands in the way."""
    command = _Command(
        "doctor",
        "Look at this machine, its Bluetooth, the clock, the disk and the way to the cloud, and say what to do.",
        "  spinney mobile doctor\n"
        "  spinney mobile doctor --cloud mqtt://cloud.example\n"
        "  spinney mobile doctor --config mobile.toml\n\n"
        "exit codes: 0 nothing stands in the way, 1 something does, 2 wrong configuration\n",
    )
    command.parser.add_argument("--json", action="store_true", help="as JSON")
    options, reread = command.parse(arguments)
    configuration = reread()
    from dataclasses import asdict

    from .doctor import examine

    findings = asyncio.run(examine(configuration.settings, _asked(_where(configuration), "/status")))
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print("\n".join(map(str, findings)))
    return FAILED if any(finding.state == "bad" for finding in findings) else DONE


def config(arguments: list[str]) -> int:
    """A sample, or a check."""
    command = _Command(
        "config",
        "Print a commented sample configuration; or check one, and name every mistake in it.",
        "  spinney mobile config > mobile.toml\n"
        "  spinney mobile config --check --config mobile.toml\n\n"
        "exit codes: 0 it holds, 2 it does not\n",
        all_settings=True,
    )
    command.parser.add_argument("--check", action="store_true", help="print what would be, and whether it holds")
    options, reread = command.parse(arguments)
    if options.check:
        print("\n".join([*reread().lines(), "ok"]))
        return DONE
    from .sample_config import sample_config

    reread()  # so that a mistyped flag is not passed over
    print(sample_config(), end="")
    return DONE


def install_service(arguments: list[str]) -> int:
    """A unit for systemd."""
    command = _Command(
        "install-service",
        "Have systemd run the broker: shows the unit, asks, writes it, and starts it.",
        "  spinney mobile install-service --dry-run\n"
        "  sudo spinney mobile install-service --config /etc/spinney/mobile.toml\n"
        "  spinney mobile install-service --user            for this user alone, without root\n\n"
        f"{EXIT_CODES}",
    )
    command.parser.add_argument("--user", action="store_true", help="a unit of this user's own systemd")
    command.parser.add_argument(
        "--as", dest="run_as", metavar="USER", help="whom the system's unit runs as (default: a user made by systemd)"
    )
    command.parser.add_argument("--dry-run", action="store_true", help="only show it")
    command.parser.add_argument("--yes", action="store_true", help="do not ask")
    options, reread = command.parse(arguments)
    configuration = reread()
    from .service import UnitError
    from .service.installing import install

    file = options.config or os.environ.get(CONFIG_VARIABLE)
    is_given = configuration.sources.get("data", "default") != "default"
    try:
        return install(
            Path(file).absolute() if file else None,
            configuration.settings.data.absolute() if is_given else None,
            user_unit=options.user,
            run_as=options.run_as,
            dry_run=options.dry_run,
            asks=not options.yes,
        )
    except UnitError as error:
        print(f"spinney mobile install-service: {error}", file=sys.stderr)
        return FAILED


COMMANDS: Final[Mapping[str, Callable[[list[str]], int]]] = {
    "run": run,
    "seen": seen,
    "top": top,
    "status": status,
    "explain": explain,
    "doctor": doctor,
    "config": config,
    "install-service": install_service,
}
