"""What processes say, on stderr: a line for people, or a JSON object for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
from types import TracebackType
from typing import Any, Protocol

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {"message", "asctime", "taskName"}


class Saying(Protocol):
    """How processes speak; a part of each tier's settings."""

    @property
    def level(self) -> str:
        """Nothing below it is said: debug, info, warning or error."""
        ...

    @property
    def format(self) -> str:
        """text or json."""
        ...


class _Formatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """What the caller gave as `extra`."""
        return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


class TextFormatter(_Formatter):
    """`2026-11-18T12:00:00Z info gateway: text (field=value)`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        fields = " ".join(f"{name}={value}" for name, value in self.fields(record).items())
        line = f"{when} {record.levelname.lower()} {self.process}: {record.getMessage()}"
        line += f" ({fields})" if fields else ""
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(_Formatter):
    """One JSON object a line: time, level, process, text, and the caller's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        item = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "process": self.process,
            "text": record.getMessage(),
            **self.fields(record),
        }
        if record.exc_info:
            item["traceback"] = self.formatException(record.exc_info)
        return json.dumps(item, default=str)


def set_up_logging(process: str, settings: Saying) -> None:
    """Make the root logger write so, and nothing else; what nobody catches and Python's warnings go there, too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter((JsonFormatter if settings.format == "json" else TextFormatter)(process))
    logging.basicConfig(handlers=[handler], level=settings.level.upper(), force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger().critical("ended by an error", exc_info=(kind, error, trace))
