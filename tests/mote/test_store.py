"""What outlives a start of the mote: checked files through any loss of power, kept state through deep sleep."""

from __future__ import annotations

from pathlib import Path

import pytest
from mote_flash import CuttableFiles, PowerCut
from spinney_boot import Files, framed, unframed
from spinney_mote.store import Store


class RtcMemory:
    """Memory that survives deep sleep, as machine.RTC().memory gives it."""

    def __init__(self) -> None:
        self.content = b""

    def __call__(self, data: bytes | None = None) -> bytes | None:
        if data is None:
            return self.content
        self.content = bytes(data)
        return None


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    Store(Files(str(tmp_path))).put("table", b"programs")
    assert Store(Files(str(tmp_path))).get("table") == b"programs"


def test_nothing_was_put(tmp_path: Path) -> None:
    assert Store(Files(str(tmp_path))).get("table") is None


def test_equal_data_is_not_written_again(tmp_path: Path) -> None:
    store = Store(Files(str(tmp_path / "state")))
    assert store.put("table", b"programs")
    first = store.flash_writes
    assert first == 3  # the folder, the new file, its rename
    assert not store.put("table", b"programs")
    assert store.flash_writes == first
    assert store.put("table", b"others")
    assert store.flash_writes == first + 2


def test_power_lost_at_any_step_leaves_old_or_new(tmp_path: Path) -> None:
    for step in range(10):
        for part in (0, 7, 11, 14):
            Store(Files(str(tmp_path))).put("table", b"old programs")
            files = CuttableFiles(str(tmp_path), cut_at=step, part=part)
            try:
                Store(files).put("table", b"new programs")
            except PowerCut:
                assert Store(Files(str(tmp_path))).get("table") in (b"old programs", b"new programs")
            else:
                assert Store(Files(str(tmp_path))).get("table") == b"new programs"
                assert step == 2
                return
    pytest.fail("never came to an end")


@pytest.mark.parametrize("at", range(15))
def test_a_damaged_file_is_no_data(tmp_path: Path, at: int) -> None:
    store = Store(Files(str(tmp_path)))
    store.put("bonds", b"keys")
    whole = bytearray((tmp_path / "bonds").read_bytes())
    whole[at] ^= 0x10
    (tmp_path / "bonds").write_bytes(whole)
    assert store.get("bonds") is None


def test_a_new_file_that_was_not_renamed_counts_where_there_is_no_old_one(tmp_path: Path) -> None:
    (tmp_path / "bonds.new").write_bytes(framed(b"keys"))
    assert Store(Files(str(tmp_path))).get("bonds") == b"keys"


def test_removed(tmp_path: Path) -> None:
    store = Store(Files(str(tmp_path)))
    store.put("crash", b"text")
    store.remove("crash")
    assert store.get("crash") is None
    store.remove("crash")


def test_state_is_kept_in_rtc_memory_without_a_flash_write(tmp_path: Path) -> None:
    memory = RtcMemory()
    store = Store(Files(str(tmp_path)), memory)
    assert store.keep(b"sequence 7")
    assert Store(Files(str(tmp_path)), memory).kept() == b"sequence 7"
    assert store.flash_writes == 0


def test_a_state_that_does_not_fit_is_refused_and_counted_and_the_old_one_is_gone(tmp_path: Path) -> None:
    store = Store(Files(str(tmp_path)), RtcMemory(), rtc_bytes=30)
    assert store.keep(bytes(19))
    assert not store.keep(bytes(20))
    assert store.not_kept == 1
    assert store.kept() is None


def test_a_board_without_such_memory_keeps_nothing(tmp_path: Path) -> None:
    store = Store(Files(str(tmp_path)))
    assert not store.keeps
    assert not store.keep(b"state")
    assert store.kept() is None


def test_rtc_memory_that_lost_a_bit_is_no_state(tmp_path: Path) -> None:
    memory = RtcMemory()
    store = Store(Files(str(tmp_path)), memory)
    store.keep(b"state")
    memory.content = memory.content[:-1] + b"?"
    assert store.kept() is None


def test_a_frame_with_bytes_behind_it_is_whole() -> None:
    assert unframed(framed(b"data") + bytes(9)) == b"data"
    assert unframed(framed(b"")) == b""
