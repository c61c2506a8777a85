"""What survives a restart of the broker: the outbox's state, but for what must be forgotten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from .deciding import BIT
from .outbox import Outbox, OutRecord


class StateOnly:
    """Without a cloud nothing goes up; what must survive a restart does so all the same."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def append(self, records: Sequence[OutRecord], state: Mapping[str, bytes | None] | None = None) -> None:
        """Of these the state."""
        del records
        if state:
            self._outbox.keep(state)


def survived(outbox: Outbox) -> dict[str, bytes]:
    """What survived. After a loss bits may not be what the cloud has been told: they are unknown (rule S2)."""
    kept = outbox.state()
    return kept if outbox.intact else _without(outbox, kept, _bits(kept))


def without_bits(
    outbox: Outbox, kept: Mapping[str, bytes], is_hidden: Callable[[Collection[str]], Collection[str]]
) -> dict[str, bytes]:
    """Without the bits of sources that are hidden now: of them labels of others would speak, as members of a scope."""
    bits = _bits(kept)
    hidden = is_hidden(set(bits.values()))
    return _without(outbox, kept, [key for key, source in bits.items() if source in hidden])


def _bits(kept: Mapping[str, bytes]) -> dict[str, str]:
    """The source of each key that is a bit's."""
    return {key: key.split(":", 2)[2] for key in kept if key.startswith(f"{BIT}:")}


def _without(outbox: Outbox, kept: Mapping[str, bytes], keys: Collection[str]) -> dict[str, bytes]:
    """These are forgotten on disk, too."""
    if keys:
        outbox.keep(dict.fromkeys(keys))
    return {key: value for key, value in kept.items() if key not in keys}
