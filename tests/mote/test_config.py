"""The mote's configuration: defaults, and errors in words that leave the mote running."""

from __future__ import annotations

import json

import pytest
from spinney_mote import config

WHOLE = {
    "name": "balcony-1",
    "sample_interval_s": 10,
    "advert_interval_ms": 500,
    "advert_idle_ms": 4000,
    "advert_fast_ms": 50,
    "advert_mode": "presence",
    "open_after": 3600,
    "fallback": "open",
    "deep_sleep": True,
    "awake_ms": 2000,
    "look_ms": 300,
    "reach_s": 600,
    "watchdog_s": 0,
    "ring_bytes": 2048,
    "table_bytes": 4096,
    "bonded_writes": False,
    "passkey": 123456,
    "pairing_s": 60,
    "sampling": False,
    "ota_key": "ab" * 32,
    "buses": {"wire": {"kind": "i2c", "id": 0, "scl": 22, "sda": 21, "freq": 100000}},
    "sensors": [{"driver": "bme280", "bus": "wire", "address": 118}, {"driver": "free"}],
}


def test_no_file_is_all_defaults_without_a_complaint() -> None:
    found = config.parse(None)
    assert (found.name, found.sample_interval_s, found.sensors, found.problems) == ("mote", 60, [], [])


def test_every_entry_is_taken() -> None:
    found = config.parse(json.dumps(WHOLE))
    assert found.problems == []
    assert {name: getattr(found, name) for name in WHOLE} == WHOLE


def test_every_entry_has_a_default_and_can_be_set() -> None:
    fields = vars(config.Config())
    assert set(fields) - {"problems", "problem_count"} == set(WHOLE)


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"nmae": "x"}, "nmae is not known"),
        ({"name": "a b"}, 'name must be 1 to 12 letters, digits, _ or -, not "a b"; its default is used'),
        ({"name": "thirteenchars"}, "name must be 1 to 12 letters"),
        ({"watchdog_s": True}, "watchdog_s must be a whole number from 0 to 600, not true"),
        ({"sample_interval_s": 0}, "sample_interval_s must be a whole number from 1 to 86400, not 0"),
        ({"sample_interval_s": 1.5}, "not 1.5; its default is used"),
        ({"deep_sleep": 1}, "deep_sleep must be true or false, not 1"),
        ({"advert_mode": "silent"}, 'advert_mode must be one of "", "open", "encrypted", "presence", not "silent"'),
        ({"fallback": ""}, 'fallback must be one of "encrypted", "open", "presence", not ""'),
        ({"open_after": "6 h"}, "open_after must be a whole number from 0 to 31536000"),
        ({"ota_key": "xyz"}, "ota_key must be 64 digits of 0-9a-f"),
        ({"buses": []}, "buses must be a table of buses"),
        ({"buses": {"a": {"kind": "can"}}}, "bus a: kind must be one of adc, i2c, onewire, pin, uart"),
        ({"buses": {"a": {"kind": "adc", "pin": "D1"}}}, "bus a: pin must be a number; the bus is left out"),
        ({"buses": {"a": {"kind": "adc", "pin": 1, "sda": 2}}}, "bus a: sda is not known for kind adc"),
        ({"sensors": [{}]}, "a sensor needs a driver, such as bme280; it is left out"),
        ({"sensors": [{"driver": "../x"}]}, "a sensor needs a driver"),
        ({"sensors": [{"driver": "scd4x", "bus": "i2c"}]}, 'sensor scd4x: there is no bus "i2c"'),
        ({"sensors": [{"driver": "free"}] * 17}, "sensors must be a list of at most 16 sensors"),
    ],
)
def test_a_wrong_entry_is_told_in_words_and_the_rest_is_used(entry: dict[str, object], complaint: str) -> None:
    found = config.parse(json.dumps({"sample_interval_s": 7, **entry}))
    assert found.problem_count == 1
    assert complaint in found.problems[0]
    assert found.sample_interval_s == (60 if "sample_interval_s" in entry else 7)
    assert found.name == "mote"
    assert found.sensors == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '"name"', "\x00"])
def test_a_file_that_is_no_object_is_told_and_all_defaults_are_used(text: str) -> None:
    found = config.parse(text)
    assert "all defaults are used" in found.problems[0]
    assert found.name == "mote"


def test_complaints_are_bounded_and_all_counted() -> None:
    found = config.parse(json.dumps({f"unknown{n}": n for n in range(100)}))
    assert len(found.problems) == config.MAX_PROBLEMS
    assert found.problem_count == 100
