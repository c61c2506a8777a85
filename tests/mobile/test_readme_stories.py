"""The stories in README.md, from mote to notification: what is measured there, and what is told."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from clouds import Cloud
from motes_kit import programs
from radio_kit import Scene, on_air
from test_system_motes import Reader, is_owner, mobile, pace, until
from uplink_kit import REAL

pytestmark = pytest.mark.slow

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
STORY = re.compile(
    r"^```sh\n(\./spinney sub .*)\n```\n\n```\n(\w+) measured: (.*)\ntold: (.*)\n```", re.MULTILINE
)  # fmt: skip


class Story(NamedTuple):
    """As README.md tells it."""

    sid: str
    text: str
    attribute: str
    measured: list[float]
    told: list[tuple[str, float]]


def stories() -> list[Story]:
    found = []
    for command, attribute, measured, told in STORY.findall(README):
        sid, text = shlex.split(command)[2].split(": ", 1)
        values = [float(value) for value in measured.split(",")]
        events = [(why, float(value)) for why, value in (event.split() for event in told.split(", "))]
        found.append(Story(sid, text, attribute, values, events))
    return found


def test_there_are_three_stories() -> None:
    assert len(stories()) == 3


@pytest.mark.parametrize("story", stories(), ids=lambda story: story.sid)
def test_a_story_is_told_as_it_stands(tmp_path: Path, story: Story) -> None:
    async def scenario(scene: Scene) -> None:
        with Cloud(tmp_path / "cloud", program=REAL) as cloud:
            async with mobile(tmp_path, "edge", cloud) as broker, Reader(cloud) as reader:
                await until(lambda: is_owner(broker), "the lease of the mote")
                await reader.subscribe(story.text)
                await until(lambda: programs(scene), "the filter on the mote")
                before = scene.life.ring.next & 0xFFFF
                pace(5.0)
                for value in story.measured:
                    scene.readings[story.attribute] = value
                    taken = scene.life.samples
                    await until(lambda taken=taken: scene.life.samples >= taken + 2, "two samples")
                await until(lambda: len(reader.read()) >= len(story.told), "all that is told")
                told = [(one.why, (one.publication or {}).get(story.attribute)) for one in reader.read()]
                assert told == story.told
                sent = (scene.life.ring.next & 0xFFFF) - before
                assert sent <= len(story.told) + 1, "a label each, and perhaps one that told the first bit"

    folder = tmp_path / "mote"
    folder.mkdir()
    on_air(folder, scenario, speed=1.0, readings={story.attribute: story.measured[0]})
