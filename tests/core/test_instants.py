"""Dates and timestamps as seconds since 1970, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney.instants import format_date, format_timestamp, parse_date, parse_timestamp

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("1970-01-01T00:00:00Z", 0.0), ("1970-01-01T00:00:00.000Z", 0.0), ("1969-12-31T23:59:59.5Z", -0.5)),
        *(("2026-11-18T12:30:00.25Z", 1795005000.25), ("0001-01-01T00:00:00Z", -62135596800.0)),
        *(("9999-12-31T23:59:59.9999Z", 253402300799.9999), ("2000-02-29T00:00:00Z", 951782400.0)),
        *(("1969-07-20T20:17:40Z", -14182940.0), ("1970-01-01T00:00:00.000000000001Z", 1e-12)),
    ],
)
def test_timestamps(text: str, seconds: float) -> None:
    assert parse_timestamp(text) == seconds
    assert parse_timestamp(format_timestamp(seconds)) == seconds


def test_dates_are_their_first_moment() -> None:
    assert parse_date("1970-01-02") == 86400.0
    assert parse_date("2024-02-29") == parse_timestamp("2024-02-29T00:00:00Z")
    assert format_date(parse_date("1582-10-04")) == "1582-10-04"
    assert format_date(-1.0) == "1969-12-31"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2026-11-18",
            "2026-11-18T12:30:00",
            "2026-11-18T12:30Z",
            "2026-11-18 12:30:00Z",
            "2026-11-18T12:30:00+01:00",
        ),
        *("2026-11-18t12:30:00z", "2026-11-18T12:30:00.Z", "2026-11-18T24:00:00Z", "2026-11-18T12:60:00Z"),
        *("2016-12-31T23:59:60Z", "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "12026-01-01T00:00:00Z", "", "now"),
        *(
            " 2026-11-18T12:30:00Z",
            "2026-11-18T12:30:00Z\n",
            "2026-11-18T12:30:00.1234567890123Z",
            "٢٠٢٦-11-18T00:00:00Z",
        ),
    ],
)
def test_what_is_no_utc_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a UTC timestamp|no such time of day|not in the calendar"):
        parse_timestamp(text)


def test_what_rounds_to_the_year_10000_is_refused() -> None:
    with pytest.raises(ValueError, match="in the year 10000"):
        parse_timestamp("9999-12-31T23:59:59.999999Z")


@pytest.mark.parametrize(
    "text", ["2026-1-1", "2026-02-29", "2026-13-01", "2026-00-10", "26-01-01", "2026-01-01T00:00:00Z", ""]
)
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a date like|not in the calendar"):
        parse_date(text)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_timestamps_agree_with_the_library(moment: datetime) -> None:
    exact = (moment.replace(tzinfo=UTC) - EPOCH) / timedelta(microseconds=1)
    seconds = parse_timestamp(moment.isoformat() + "Z")
    assert abs(seconds - exact / 1e6) <= abs(seconds) * 2**-52
    assert parse_timestamp(format_timestamp(seconds)) == seconds
    assert format_date(seconds // 86400 * 86400) == moment.date().isoformat() or seconds % 86400 == 0
