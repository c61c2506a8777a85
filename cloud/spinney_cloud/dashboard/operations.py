"""What operators are shown of the cloud: health, lag, and what it sent and spared, from all processes' metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import orjson
from prometheus_client.parser import text_string_to_metric_families

from .. import setup_status
from ..api.context import Api
from ..api.routes_operations import ask_all, health_of
from .channels import Newest

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 3.0

COUNTED: Final = {
    "spinney_gateway_bytes_total": "bytes",
    "spinney_gateway_received_total": "received",
    "spinney_gateway_stored_total": "stored",
    "spinney_matcher_readings_total": "readings",
    "spinney_matcher_duplicates_total": "duplicates",
    "spinney_matcher_matched_total": "matched",
    "spinney_matcher_notes_total": "notes",
    "spinney_matcher_behind": "matcher_behind",
    "spinney_matcher_lag_seconds": "matcher_lag",
    "spinney_delivery_delivered_total": "delivered",
    "spinney_delivery_dropped_total": "delivery_dropped",
    "spinney_delivery_dead_total": "dead",
    "spinney_pipeline_behind": "pipeline_behind",
    "spinney_pipeline_lag_seconds": "pipeline_lag",
    "spinney_http_events_total": "events",
}
"""Metrics that are shown, each the sum over its labels."""


class Operations:
    """Of this cloud, looked at while an operator looks."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._newest = Newest()
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[Newest]:
        """For one operator."""
        self._watchers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        try:
            yield self._newest
        finally:
            self._watchers -= 1
            if not self._watchers:
                await self.close()

    async def close(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _look(self) -> None:
        while True:
            metrics, answers = await asyncio.gather(ask_all(self._api, "metrics"), ask_all(self._api, "health"))
            texts = [text.decode() for text in metrics.values() if text is not None]
            counts = await asyncio.to_thread(counted, texts)
            setup = await asyncio.to_thread(setup_status.read, self._api.service.settings.data)
            told = {"kind": "operations", "health": health_of(answers), "counts": counts, "setup": setup}
            self._newest.put(orjson.dumps(told))
            await asyncio.sleep(LOOK_SECONDS)


def counted(texts: Iterable[str]) -> dict[str, Any]:
    """The numbers that are shown, from metrics in Prometheus' text format."""
    found: dict[str, float] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = COUNTED.get(sample.name)
                if name is not None:
                    found[name] = found.get(name, 0.0) + sample.value
    return found
