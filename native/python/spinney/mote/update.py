"""New library files for a mote over its link; the mote keeps them only if it is healthy with them."""

from __future__ import annotations

from collections.abc import Callable

from . import bundle
from .link import MoteLink
from .protocol import ControlOp


def _silent(_done: int, _whole: int) -> None:
    pass


async def update(mote: MoteLink, whole: bytes, progress: Callable[[int, int], None] = _silent) -> None:
    """Sends a bundle and has the mote verify it; the next start of the mote tries it.

    After a lost connection, call it again with the same bundle over the next one: it goes on where the last was cut
    off. MoteRefused says why the mote will not have it. `progress` is told bytes done, and bytes of the bundle.
    """
    offset, awaited = bundle.answered(await mote.control(ControlOp.OTA, bundle.WHERE_PAYLOAD))
    if awaited != len(whole):
        offset, _ = bundle.answered(await mote.control(ControlOp.OTA, bundle.begin_payload(whole)))
    while offset < len(whole):
        progress(offset, len(whole))
        offset, _ = bundle.answered(await mote.control(ControlOp.OTA, bundle.chunk_payload(whole, offset)))
    await mote.control(ControlOp.OTA, bundle.COMMIT_PAYLOAD)
    progress(len(whole), len(whole))
