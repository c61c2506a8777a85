"""A command at a terminal of its own: what it prints there is read, what a person would type is typed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from clouds import WAIT_SECONDS, wait_until

CTRL_C = "\x03"
# The session's first process takes the terminal as its own, so that Ctrl-C reaches who is in the foreground.
_TAKES_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """The command runs within a `with`, which leaves nothing behind."""

    def __init__(self, command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-c", _TAKES_TERMINAL, *map(str, command)]
        self._folder = folder
        self._environment = environment
        self._said = bytearray()

    def __enter__(self) -> Self:
        self._said.clear()
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            self._command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()
        return self

    def _listen(self) -> None:
        while True:
            try:
                self._said += os.read(self._master, 4096)
            except OSError:  # nobody has it open any more
                return

    @property
    def said(self) -> str:
        """All of it so far, as a person reads it."""
        return self._said.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        """Until it is said."""
        wait_until(lambda: text in self.said or self.process.poll() is not None, text)
        assert text in self.said, self.said

    def type(self, text: str) -> None:
        """As at a keyboard."""
        os.write(self._master, text.encode())

    def family(self) -> list[psutil.Process]:
        """It, the processes that it started, and theirs."""
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    def end(self) -> int:
        """Its exit code, once it ends by itself."""
        code = self.process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        return code

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()  # its children end with it
        self.end()
        os.close(self._master)
        if error is not None:
            print(self.said)
