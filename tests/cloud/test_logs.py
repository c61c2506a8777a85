from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from spinney.logs import JsonFormatter, TextFormatter

IMPORTS = "from spinney.logs import *\nfrom spinney_cloud.settings import Logging\n"


def record(text: str, *arguments: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("spinney_cloud.x", logging.WARNING, "", 0, text, arguments, None)
    made.__dict__.update(fields)
    made.created = 1_731_900_000.25
    return made


def test_a_line_for_people() -> None:
    line = TextFormatter("gateway").format(record("%d refused", 3, client="kit"))
    assert line == "2024-11-18T03:20:00Z warning gateway: 3 refused (client=kit)"


def test_an_object_for_machines() -> None:
    line = JsonFormatter("gateway").format(record('"%s"\n', "x", client="kit"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": 1731900000.25,
        "level": "warning",
        "process": "gateway",
        "text": '"x"\n',
        "client": "kit",
    }


@pytest.mark.parametrize("code", ["1 / 0", "import asyncio\nasync def f(): 1 / 0\nasyncio.run(f())"])
def test_what_nobody_catches_is_one_object_too(code: str) -> None:
    start = f"{IMPORTS}set_up_logging('x', Logging(format='json'))\n"
    ended = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    item = json.loads(line)
    assert item["level"] == "critical"
    assert "ZeroDivisionError" in item["traceback"]


def test_warnings_of_python_are_logged() -> None:
    code = f"{IMPORTS}import warnings\nset_up_logging('x', Logging(format='json'))\nwarnings.warn('old')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "old" in json.loads(ended.stderr)["text"]
