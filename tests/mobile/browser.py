"""A headless chromium, looked at through its DevTools protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from clouds import wait_until
from websockets.sync.client import connect

ANSWER_SECONDS = 60.0


class Browser:
    """One page. A `with` starts the browser, and leaves nothing behind."""

    def __init__(self, folder: Path, *options: str) -> None:
        program = shutil.which("chromium")
        assert program
        self._folder = folder / "browser"
        self._command = [
            *(program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", *options),
            *(f"--user-data-dir={self._folder}", "about:blank"),
        ]
        self._number = 0
        self.asked: list[str] = []
        """Addresses that pages have asked for."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(self._command, stdin=quiet, stdout=quiet, stderr=quiet)
            stack.callback(process.wait, ANSWER_SECONDS)
            stack.callback(process.terminate)
            file = self._folder / "DevToolsActivePort"
            wait_until(lambda: file.exists() and file.read_text().count("\n") == 1, "the browser")
            port = file.read_text().splitlines()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=60) as answer:
                page = next(one for one in json.load(answer) if one["type"] == "page")
            self._socket = stack.enter_context(connect(page["webSocketDebuggerUrl"], max_size=None))
            self.call("Network.enable")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def call(self, method: str, **parameters: Any) -> Any:
        """One command, and its answer."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(ANSWER_SECONDS))
            if message.get("method") == "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"])
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]

    def open(self, url: str) -> None:
        """Go there."""
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Of JavaScript."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def text(self) -> str:
        """What a person reads."""
        return str(self.value("document.body ? document.body.innerText : ''"))

    def screenshot(self, file: Path, width: int, height: int) -> None:
        """As it looks on a screen of this size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
