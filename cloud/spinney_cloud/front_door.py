"""What every publication passes, whether it came by MQTT or HTTP: intake, the disk's floor, the log, dead letters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from spinney import PublicationError, PublicationId

from . import dead_letters
from .dead_letters import DeadLetters
from .gateway_metrics import GatewayMetrics
from .group_commit import GroupCommit
from .intake import Intake, Sender, Taken, TooLargeForRecord, parts
from .keeper import Disk
from .log_errors import LogError, TooLarge
from .payloads import Refusal
from .records import Unpublish
from .source_owners import SourceOwners

logger = logging.getLogger(__name__)

LARGEST_ROW_ROOM = 64 * 1024
"""Of a record, beside its largest row."""

Done = Callable[[LogError | None], None]


class FrontDoor:
    """Takes in, and puts into the log."""

    def __init__(
        self,
        intake: Intake,
        owners: SourceOwners,
        commit: GroupCommit,
        dead: DeadLetters,
        disk: Disk,
        metrics: GatewayMetrics,
        largest_record: Callable[[], int],
    ) -> None:
        self.intake = intake
        self.commit = commit
        self.dead = dead
        self.disk = disk
        self.metrics = metrics
        self._owners = owners
        self._largest_record = largest_record

    def take(self, sender: Sender, payload: bytes) -> Taken:
        """What can be taken in of a payload now. Nothing that a payload holds can end the process."""
        self.metrics.bytes += len(payload)
        try:
            taken = self.intake.take(sender, payload, time.time())
        except Exception as error:  # else the server sends this payload again at each start, for ever
            logger.exception("a payload of %s cannot be dealt with", sender.client)
            return Taken(refusals=[Refusal(None, None, f"it cannot be dealt with: {error!r:.200}", "broken")])
        if self.disk.full and (taken.rows or taken.labels):
            taken = Taken(batch=taken.batch, busy="disk: too little space is free; send it again later")
        if taken.busy is not None:
            self.metrics.busy[taken.busy.partition(":")[0]] += 1
        self.metrics.received += len(taken.rows)
        return taken

    def store(self, sender: Sender, taken: Taken, done: Done) -> None:
        """Put what was taken in into the log; `done` at once if there is nothing, or if it can never be stored."""
        if not taken.rows and not taken.labels:
            done(None)
            return
        largest = self._largest_record() - LARGEST_ROW_ROOM
        try:
            made = list(parts(taken, self.commit.max_record_bytes, largest))
        except TooLargeForRecord as error:
            done(TooLarge(error.size, largest))
        else:
            self.commit.add(sender.tenant, made, done)

    def refused(self, sender: Sender, topic: str, payload: bytes, taken: Taken) -> None:
        """Count what was refused of a payload, and keep it as a dead letter."""
        self.metrics.refused.update(refusal.kind for refusal in taken.refusals)
        letter = dead_letters.letter(
            client=sender.client,
            tenant=sender.tenant,
            topic=topic,
            payload=payload,
            refusals=taken.refusals,
            received=time.time(),
        )
        self.dead.put("intake", sender.client, letter)

    def unpublish(self, sender: Sender, id: Any, done: Done) -> str:
        """Have a publication be no longer valid; its id. PublicationError, or NotTheOwner, if that cannot be."""
        if not isinstance(id, str):
            raise PublicationError('expected {"id": "source:boot:sequence"}', attribute="id")
        self._owners.check(sender.tenant, sender.client, PublicationId.parse(id).source, None)
        self.commit.add_record(Unpublish(sender.tenant, sender.client, id), done)
        return id
