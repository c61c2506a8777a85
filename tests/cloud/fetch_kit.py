"""Mobile brokers that do as a test says, and dry runs that ask them, with a whole cloud."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
from clouds import Cloud
from gateway_kit import Client, until
from servers import HOST

from spinney_cloud import names

CO2 = {"co2": {"min": 0, "max": 5000}}
_numbers = itertools.count(1)


class FakeBroker(Client):
    """It announces sources; what it is asked for is in `asked`, and what it answers is the test's affair."""

    session = "s1"

    def __init__(self, port: int, name: str, **options: Any) -> None:
        super().__init__(port, name, **options)
        self.sources: list[str] = []

    async def announce(self, *sources: str, askable: bool = True, **more: Any) -> None:
        """Sources that give co2, which are this broker's once it returns."""
        self.sources = [*sources]
        listed = [{"name": name, "attributes": CO2} for name in sources]
        await self.say({"session": self.session, "sources": listed, "lease": [*sources], **more})
        await self.hears("request", "members")
        if askable:
            await self.say({"session": self.session, "fetch": True})

    async def say(self, item: Any) -> None:
        await self.publish(item, "ann")

    @property
    def asked(self) -> list[dict[str, Any]]:
        """Questions, the newest last."""
        return [told["fetch"] for told in self.told if "fetch" in told]

    @property
    def refused(self) -> list[str]:
        """What was said of answers that were not taken."""
        return [told["error"]["message"] for told in self.told if told.get("request") == "fetch"]

    async def next_question(self, count: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = (await until(lambda: self.asked[count - 1 :], f"{count} questions"))[0]
        return found

    async def answer(self, id: str, *readings: Any, part: int = 0, more: bool = False, **others: Any) -> None:
        said = {"id": id, "part": part, "more": more, "readings": [*readings]}
        await self.say({"session": self.session, "fetched": {**said, **others}})


def held(source: str, co2: float, *, age: float = 1.0, epoch: int = 0, number: int | None = None, **more: Any) -> Any:
    """A reading that was held back."""
    number = next(_numbers) if number is None else number
    row = {"id": f"{source}:1:{number}", "source": source, "co2": co2, "time": 1.7e9, "valid_for": 3600.0}
    return [age, epoch, {**row, **more}]


@asynccontextmanager
async def broker(port: int, name: str, *sources: str, **options: Any) -> AsyncIterator[FakeBroker]:
    """One that is announced, and can be asked."""
    made = FakeBroker(port, name, **options)
    await made.mqtt.start()
    await made.mqtt.subscribe([names.topic(name, "reply"), names.topic(name, "act")])
    try:
        if sources:
            await made.announce(*sources)
        yield made
    finally:
        await made.say({"session": made.session, "over": True})
        await made.mqtt.close()


async def dry(cloud: Cloud, subscription: Any, *, status: int = 200, auth: Any = None, **more: Any) -> dict[str, Any]:
    """A dry run that fetches."""
    url = f"http://{HOST}:{cloud.port('HTTP')}/v1/subscriptions"
    asked = {"dry_run": 1, "last": "1h", "fetch": 1, **more}
    async with httpx.AsyncClient(timeout=60, auth=auth) as client:
        answer = await client.post(url, params=asked, json={"subscription": subscription})
    assert answer.status_code == status, answer.text
    told: dict[str, Any] = orjson.loads(answer.content)
    return told


def asking(cloud: Cloud, subscription: Any, **more: Any) -> asyncio.Task[dict[str, Any]]:
    """The same, while brokers answer."""
    return asyncio.create_task(dry(cloud, subscription, **more))


async def metric(cloud: Cloud, name: str) -> float:
    """Of all processes, summed."""
    async with httpx.AsyncClient(timeout=20) as client:
        text = (await client.get(f"http://{HOST}:{cloud.port('HTTP')}/metrics")).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def values(told: dict[str, Any]) -> list[float]:
    """Of co2, in the order of the notifications."""
    return [note["publication"]["co2"] for note in told["notifications"]]
