"""An acquirer that could not be made: as any that fails it is shown with the reason, and tried again."""

from __future__ import annotations

from collections.abc import Callable

from ..samples import Acquirer, AcquirerError, Sink

Make = Callable[[], Acquirer]


class Unmade(Acquirer):
    """Made anew at each attempt."""

    def __init__(self, name: str, make: Make) -> None:
        super().__init__(name)
        self._make = make
        self._made: Acquirer | None = None

    @property
    def error(self) -> str | None:  # type: ignore[override]  # what others have as a variable
        """Of what was made at last."""
        return None if self._made is None else self._made.error

    async def run(self, sink: Sink) -> None:
        self._made = self._make()
        self.counts = self._made.counts
        await self._made.run(sink)


def made(name: str, make: Make) -> Acquirer:
    """The acquirer; where that fails, one that goes on trying."""
    try:
        return make()
    except (AcquirerError, ImportError, OSError, ValueError):
        return Unmade(name, make)
