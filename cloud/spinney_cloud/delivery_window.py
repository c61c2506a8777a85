"""How many messages may be under way to the MQTT server: as many as it acknowledges promptly.

What is sent beyond that only waits in the server, in front of everybody's next notification; and nats-server's work for
each message grows with what it has waiting. So the window grows while it is full and PUBACKs come promptly, and shrinks
when they are late. Measured on nats-server with 1,000 subscribers: at 100 to 300 under way 0.17 CPU ms each, at 1,000
0.21 to 0.25; to a single subscriber 1,000 are acknowledged within 15 ms.
"""

from __future__ import annotations

from typing import Final

LEAST: Final = 32
TARGET_SECONDS: Final = 0.05
"""A PUBACK that comes later is late."""
SMOOTH: Final = 0.1
"""The weight of one PUBACK in the average."""


class Window:
    """Told the latency of each PUBACK, it says how many may be under way."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = min(LEAST, most)
        self.latency = 0.0
        """Average, in seconds."""
        self._since = 0
        self._full = False

    def acknowledged(self, latency: float, in_flight: int) -> None:
        """One PUBACK came so long after its message was sent; so many were under way."""
        self.latency += SMOOTH * (latency - self.latency)
        self._full |= in_flight >= self.size
        self._since += 1
        if self._since * 2 >= self.size:
            self._adapt()

    def _adapt(self) -> None:
        if self.latency > TARGET_SECONDS:
            self.size = max(min(LEAST, self.most), self.size * 3 // 4)
        elif self._full and self.latency < TARGET_SECONDS / 2:
            self.size = min(self.most, self.size + max(1, self.size // 4))
        self._since = 0
        self._full = False
