"""The options of a subscription in a dry run: what delivery would have let through, by the log's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from spinney import parse
from spinney_cloud.api.dry_run import MAX_NOTIFICATIONS, Replay, private
from spinney_cloud.completeness import Answer
from spinney_cloud.delivery_options import read_options
from spinney_cloud.names import log_subject
from spinney_cloud.nats_log import Message
from spinney_cloud.records import Publications, Run, encode
from spinney_cloud.settings import Settings
from spinney_cloud.subscriptions import form_of

START = 1_770_000_000.0
"""A multiple of five minutes and of ten seconds."""
HERE, THERE = {"lat": 45.8, "long": 15.9}, {"lat": 46.8, "long": 16.9}


def replayed(
    options: dict[str, Any], rows: Sequence[tuple[float, dict[str, Any]]], end: float = 3600.0, text: str = "temp > 0"
) -> dict[str, Any]:
    """A dry run of these readings, each logged so many seconds after the start; as the API tells it."""
    form = form_of(parse(text))
    stored = private("default", "ana", "dry", form)
    replay = Replay.of(stored, Settings(), options=read_options(options))
    for number, (seconds, row) in enumerate(rows):
        full = [{"id": f"m1:1:{number}", "source": "m1", **row}]
        record = Publications("default", START, (Run("m1", 1, number, 1, "m1", None, 1),), orjson.dumps(full))
        replay.feed([Message(number + 1, START + seconds, log_subject("publications", "default"), encode(record))])
    replay.finish(START + end)
    told: dict[str, Any] = orjson.loads(orjson.dumps(replay.result(form, Answer("content"))))
    return told


def temps(told: dict[str, Any]) -> list[float]:
    return [note["publication"]["temp"] for note in told["notifications"]]


def warm(*seconds: float, **more: Any) -> list[tuple[float, dict[str, Any]]]:
    """Readings at these times; each time is the temperature, too."""
    return [(each, {"temp": each + 1, **more}) for each in seconds]


def test_without_options_all_is_delivered() -> None:
    told = replayed({}, warm(0, 1, 2))
    assert (temps(told), told["count"], told["left_out"]) == ([1, 2, 3], 3, {})


def test_of_each_cell_and_period_the_first_are_delivered_and_the_others_said_apart() -> None:
    rows = [*warm(0, 10, **HERE), *warm(20, **THERE), *warm(299, **HERE), *warm(300, 301, **HERE)]
    told = replayed({"density": {"cell": 8, "at_most": "1/5m"}}, rows)
    assert temps(told) == [1, 21, 301]
    assert (told["count"], told["left_out"]) == (3, {"at_most": 3})


def test_of_what_comes_too_soon_the_newest_is_delivered_when_it_may_be() -> None:
    told = replayed({"max_per": "1/10s"}, warm(0, 1, 2, 30, 33))
    assert temps(told) == [1, 3, 31, 34], "the one of 2 at 10, the one of 33 at 40"
    assert (told["count"], told["left_out"]) == (4, {"rate": 1})


def test_what_falls_due_between_readings_counts_from_then_on_and_not_from_the_next_reading() -> None:
    told = replayed({"max_per": "1/10s"}, warm(0, 1, 21, 22))
    assert temps(told) == [1, 2, 22, 23], "1 went at 10, so that 21 need not wait"
    assert told["left_out"] == {}


def test_what_would_go_out_after_the_end_is_said_to_be_held() -> None:
    told = replayed({"max_per": "1/10m"}, warm(0, 1), end=2.0)
    assert (temps(told), told["left_out"]) == ([1], {"held": 1})
    told = replayed({"digest": "5m"}, warm(0, 1, 400), end=500.0)
    assert (temps(told), told["count"], told["left_out"]) == ([1, 2], 2, {"held": 1})


def test_a_digest_that_is_too_soon_is_left_out_with_all_that_is_in_it() -> None:
    told = replayed({"digest": "10s", "max_per": "1/1min"}, warm(0, 1, 20, 21, 40, 41))
    assert temps(told) == [1, 2, 41, 42]
    assert told["left_out"] == {"rate": 2}


def test_a_digest_drops_what_its_queue_has_no_room_for() -> None:
    told = replayed({"digest": "10s", "queue": 2}, warm(0, 1, 2))
    assert (temps(told), told["left_out"]) == ([2, 3], {"queue": 1})


def test_what_is_delivered_and_what_is_left_out_is_all_there_was() -> None:
    rows = warm(*range(0, 3000, 7), **HERE)
    options = {"density": {"cell": 8, "at_most": "30/5m"}, "max_per": "2/30s"}
    told = replayed(options, rows)
    assert told["count"] + sum(told["left_out"].values()) == len(rows)
    assert set(told["left_out"]) == {"at_most", "rate"}
    assert told["count"] == len(told["notifications"])


def test_state_is_kept_from_all_readings_whatever_is_delivered() -> None:
    rows = [(seconds, {"temp": temp}) for seconds, temp in enumerate((30, 10, 30, 10, 30))]
    told = replayed({"max_per": "1/1h"}, rows, text="WHEN temp > 25 UNTIL temp < 15", end=7200.0)
    assert [note["why"] for note in told["notifications"]] == ["enter", "enter"], (
        "the first, and an hour later the last"
    )
    assert told["left_out"] == {"rate": 3}


def test_only_what_is_delivered_takes_room_in_the_answer() -> None:
    rows = warm(*range(MAX_NOTIFICATIONS + 500), **HERE)
    told = replayed({"max_per": "1/1s"}, rows)
    assert (told["count"], len(told["notifications"])) == (MAX_NOTIFICATIONS + 500, MAX_NOTIFICATIONS)
    assert told["cut"] == ["notifications"]
    told = replayed({"max_per": "1/2s"}, rows)
    assert told["count"] == len(told["notifications"]) == (MAX_NOTIFICATIONS + 500) // 2 + 1
    assert told["cut"] == []


def test_nothing_is_remembered_of_what_is_over() -> None:
    form = form_of(parse("temp > 0"))
    options = read_options({"density": {"cell": 8, "at_most": "3/10s"}, "max_per": "1/1s"})
    replay = Replay.of(private("default", "ana", "dry", form), Settings(), options=options)
    for number in range(500):
        full = [{"id": f"m1:1:{number}", "source": "m1", "temp": 1, **HERE}]
        record = Publications("default", START, (Run("m1", 1, number, 1, "m1", None, 1),), orjson.dumps(full))
        replay.feed([Message(number + 1, START + number, log_subject("publications", "default"), encode(record))])
        assert replay.delivery is not None
        assert replay.delivery.remembered <= 8
