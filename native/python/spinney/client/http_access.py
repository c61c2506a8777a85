"""The cloud's HTTP API for commands: JSON in, JSON out, and in words what went wrong."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from ..errors import SpinneyError

VARIABLE = "SPINNEY_HTTP"
DEFAULT = "http://127.0.0.1:8080"
TIMEOUT_SECONDS = 10.0


class HttpAccessError(SpinneyError):
    """There is no answer, or a refusal; `status` is that of the answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class HttpAccess:
    """The address, and who asks."""

    def __init__(self, url: str | None, authorization: str | None = None) -> None:
        """`authorization`: the value of the header."""
        self.tls: ssl.SSLContext | None = None
        """For an https address whose certificate is not one of those that the system trusts."""
        self._base = (url or os.environ.get(VARIABLE) or DEFAULT).rstrip("/")
        if not self.is_secure and not self._base.startswith("http://"):
            raise HttpAccessError(f"{self._base}: an HTTP address is http://host:port or https://host:port")
        self._headers = {"Accept": "application/json"}
        if authorization is not None:
            self._headers["Authorization"] = authorization

    @property
    def is_secure(self) -> bool:
        """Whether it goes by TLS."""
        return self._base.startswith("https://")

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """The answer's object."""
        url = f"{self._base}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310  # http or https: it was looked at
        return self._ask(request, TIMEOUT_SECONDS)

    def post(self, path: str, body: Any, timeout_seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """The same of what is sent."""
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._base}{path}", json.dumps(body).encode(), headers)  # noqa: S310
        return self._ask(request, timeout_seconds)

    def _ask(self, request: urllib.request.Request, timeout_seconds: float) -> dict[str, Any]:
        tls = self.tls if self.is_secure else None
        try:
            with urllib.request.urlopen(request, timeout=timeout_seconds, context=tls) as answer:  # noqa: S310
                item = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise HttpAccessError(f"{self._base}: {_problem(error)}", error.code) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise HttpAccessError(f"{self._base}: {getattr(reason, 'strerror', None) or reason}") from None
        except ValueError:
            item = None
        if not isinstance(item, dict):
            raise HttpAccessError(f"{self._base}: this is no Spinney's HTTP API")
        return item


def _problem(error: urllib.error.HTTPError) -> str:
    """What the cloud says; a bare status where it says nothing."""
    try:
        detail = json.load(error).get("detail")
    except (ValueError, AttributeError):
        detail = None
    return f"{detail or error.reason} ({error.code})"
