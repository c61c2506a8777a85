"""The coordinator: the only writer of subscriptions, announcements and activations. It starts from their buckets."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine
from typing import Any, Final, Literal

import orjson
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from .broker_service import BrokerService
from .client_requests import ClientRequests
from .coordinator_asks import CoordinatorAsks
from .log_errors import LogError
from .nats_log import NatsLog
from .post import Post
from .service import Service
from .settings import Settings
from .subscription_service import SubscriptionService

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS: Final = 10.0
"""Between looks for what has expired."""
DRAIN_SECONDS: Final = 5.0
"""For what has been begun, when the process is asked to stop; what is not done by then is done after the next start."""
_COLLECT_AFTER: Final = 50_000
"""Objects, before Python looks for cycles among the new ones: a request makes hundreds, and no cycle."""


async def serve(service: Service) -> None:
    """Work until it is asked to stop."""
    gc.set_threshold(_COLLECT_AFTER)
    async with await NatsLog.connect(service.endpoints, name="coordinator") as nats, asyncio.TaskGroup() as group:
        coordinator = Coordinator(nats, service, group)
        await coordinator.start()
        service.ready()
        await service.stopping.wait()
        await coordinator.stop()


class Coordinator:
    """All parts, and the tasks in which they work."""

    def __init__(self, nats: NatsLog, service: Service, group: asyncio.TaskGroup) -> None:
        self._nats = nats
        self._service = service
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_started = False
        settings = service.settings
        self.subscriptions = SubscriptionService(nats, settings.limits)
        self.brokers = BrokerService(
            nats,
            settings.coordinator,
            service.metrics,
            spawn=self._spawn,
            settled=self.subscriptions.settled,
        )
        self.subscriptions.on_change = self.brokers.subscribed
        self.post = Post(nats.connection)
        self.requests = ClientRequests(nats, self.subscriptions, self.brokers, self.post, service.metrics)
        self._gauges(service.metrics)
        service.health = self.health
        service.on_reload = self._reload

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """The failure of one task is the process's: it starts again from the buckets."""
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _gauges(self, metrics: CollectorRegistry) -> None:
        shown = {
            "subscriptions": ("Subscriptions that are kept", lambda: len(self.subscriptions.table)),
            "requests_under_way": ("Requests that are not replied to yet", lambda: self.requests.queue.under_way),
            "requests_lag_seconds": ("Of these the oldest", lambda: self.requests.queue.lag_seconds),
            "changes_under_way": ("Changes on their way to the buckets", lambda: self.subscriptions.under_way),
            "replies_under_way": ("Messages that the gateway has not sent yet", lambda: self.post.under_way),
            "filters_failed": ("Filters that activation could not deal with", lambda: self.brokers.failures),
            "sources_failed": ("How often a source began to fail", lambda: self._reported("failures")),
            "reliabilities_forgotten": ("Of sources, for want of room", lambda: self._reported("forgotten")),
            "history_gaps": ("Entries of the history that no record holds", lambda: self.brokers.recorder.failures),
            "damaged": ("Values that could not be read", lambda: self.subscriptions.damaged + self.brokers.damaged),
        }
        for name, (text, value) in shown.items():
            Gauge(f"spinney_coordinator_{name}", text, registry=metrics).set_function(value)

    def _reported(self, name: Literal["failures", "forgotten"]) -> int:
        """Of all tenants' sources."""
        return sum(getattr(one.reports, name) for one in self.brokers.activations.values())

    def health(self) -> dict[str, Any]:
        """For /readyz."""
        ready = self._is_started and self._nats.connected
        told = {
            "ready": ready,
            "subscriptions": len(self.subscriptions.table),
            "brokers": len(self.brokers.senders),
            "lag_seconds": self.requests.queue.lag_seconds,
        }
        return told if ready else {**told, "why": "not connected to the log" if self._is_started else "starting"}

    def _reload(self, settings: Settings) -> None:
        self.subscriptions.limits = settings.limits
        self.brokers.settings = settings.coordinator

    async def start(self) -> None:
        """Read the buckets, and begin."""
        await self.post.start()
        await self.brokers.load()
        await self.subscriptions.start(self._spawn)
        self.brokers.start()
        await CoordinatorAsks(self.subscriptions, self.brokers).listen(self._nats)
        await self._nats.answer("coordinator", "metrics", self._metrics)
        await self._nats.answer("coordinator", "health", self._health)
        await self._nats.connection.flush()  # whoever asks from now on finds somebody there
        for work in (self.requests.take(), self.requests.reply(), self._expire()):
            self._spawn(work)
        gc.freeze()
        self._is_started = True

    async def stop(self) -> None:
        """Take no more, and finish what has been begun."""
        await self.requests.close()
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.subscriptions.settled()
                await self.brokers.keep_reports()
        except TimeoutError:
            log.warning("%d changes are left for the next start", self.subscriptions.under_way)
        except LogError as error:
            log.warning("the reliability of sources is not written: %s", error)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.post.close()

    async def _metrics(self, _: bytes) -> bytes:
        return generate_latest(self._service.metrics)

    async def _health(self, _: bytes) -> bytes:
        return orjson.dumps(self.health())

    async def _expire(self) -> None:
        while True:
            try:
                await self.subscriptions.expire()
            except LogError as error:
                log.warning("what has expired is ended later: %s", error)
            await self.subscriptions.until_next(LONGEST_WAIT_SECONDS)
