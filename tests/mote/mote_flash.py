"""A mote's flash whose power can be cut at any write, with a part of that write done."""

from __future__ import annotations

from collections.abc import Callable

from spinney_boot import Files


class PowerCut(BaseException):
    """Nothing on the mote can catch it."""


class CuttableFiles(Files):
    """Files on which the write number `cut_at` (the first is 0) does not end: `part` bytes of it are done."""

    def __init__(self, folder: str, *, cut_at: int | None = None, part: int = 0) -> None:
        super().__init__(folder)
        self.cut_at = cut_at
        self.part = part
        self.steps = 0

    def _step(self, done_in_part: Callable[[], None] | None = None) -> None:
        if self.cut_at is not None and self.steps >= self.cut_at:
            if self.steps == self.cut_at and done_in_part is not None:
                done_in_part()
            self.steps += 1
            raise PowerCut
        self.steps += 1

    def _write(self, name: str, data: bytes, mode: str) -> None:
        self._step(lambda: super(CuttableFiles, self)._write(name, data[: self.part], mode))
        super()._write(name, data, mode)

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self._step()
        super().remove(name)
