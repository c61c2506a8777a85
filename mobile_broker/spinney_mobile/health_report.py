"""What this broker tells of its sources beside announcing them: how full their batteries are, when they were heard.

One character for each source (see spinney.source_health), at each heartbeat and when one has changed; only to a cloud
whose answer says that it takes them, and within a share of what goes up anyway. Pure; the clock is handed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from spinney.source_health import encode, without_silence

MEMBER: Final = "health"
SHARE: Final = 0.02
"""Of the bytes that go up; what would be more than that waits for the next time."""
CHANGES_SECONDS: Final = 60.0
"""Between two looks for what has changed."""
MESSAGE_BYTES: Final = 50
"""What a message costs beside its payload: topic, MQTT's header, and the acknowledgement."""
_UNKNOWN: Final = encode(0, 0)
"""Of a source that is announced until the next announcement says that it is gone."""


class HealthReport:
    """Of one uplink."""

    def __init__(self, bytes_sent: Callable[[], int] = lambda: 0) -> None:
        """`bytes_sent`: of all that goes up but announcements."""
        self.codes: Callable[[], Mapping[str, str]] = dict
        """The character of each source, now."""
        self.bytes = 0
        """What all this has cost."""
        self.due: float | None = None
        """When to look for what has changed; None: the cloud does not want to know."""
        self._bytes_sent = bytes_sent
        self._announced_bytes = 0
        self._told: dict[str, str] = {}

    def opened(self) -> None:
        """A new link: the cloud knows nothing of this, and may be another."""
        self.due = None
        self._told = {}

    def answered(self, reply: Mapping[str, Any], now: float) -> None:
        """The cloud has answered to an announcement."""
        members = reply.get("members")
        if not reply.get("ok") or not isinstance(members, list) or MEMBER not in members:
            self.opened()
        elif self.due is None:
            self.due = now

    def along(self, announcement: bytes, sources: Sequence[str], *, is_heartbeat: bool) -> bytes:
        """An announcement of these sources, with what there is to tell of them."""
        self._announced_bytes += len(announcement)
        if self.due is None:
            return announcement
        codes = self._codes_of(sources)
        member = b',"%b":"%b"}' % (MEMBER.encode(), "".join(codes.values()).encode())
        is_needed = is_heartbeat or codes != self._told or any(code != without_silence(code) for code in codes.values())
        if not codes or not is_needed or not self._spend(len(member) - 1):
            self._told = {source: without_silence(code) for source, code in self._told.items()}
            return announcement
        self._told = codes
        return announcement[:-1] + member

    def message(self, session: str, sources: Sequence[str], now: float, *, is_announced: bool) -> bytes | None:
        """What has changed of them, if it is time. `is_announced`: the cloud has the announcement of just these."""
        if self.due is None or now < self.due:
            return None
        self.due = now + CHANGES_SECONDS
        codes = self._codes_of(sources)
        changed = {source: code for source, code in codes.items() if self._told.get(source) != code}
        if not changed:
            return None
        data = _json({"session": session, MEMBER: changed})
        if is_announced:
            data = min(data, _json({"session": session, MEMBER: "".join(codes.values())}), key=len)
        if not self._spend(len(data) + MESSAGE_BYTES):
            return None
        self._told = codes
        return data

    def _codes_of(self, sources: Sequence[str]) -> dict[str, str]:
        codes = self.codes()
        return {source: codes.get(source, _UNKNOWN) for source in sources}

    def _spend(self, size: int) -> bool:
        if self.bytes + size > SHARE * (self._announced_bytes + self._bytes_sent()):
            return False
        self.bytes += size
        return True


def _json(item: Any) -> bytes:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()
