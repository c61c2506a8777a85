"""What outlives a start: checked files for what power loss must not take, RTC memory for what deep sleep must not."""

from spinney_boot import FRAME_BYTES, Files, framed, read_checked, unframed, write_checked


class Store:
    """Named checked files and one kept state.

    `rtc_memory` reads and writes memory that survives deep sleep, as `machine.RTC().memory` does: without an argument
    it returns what is there. None where the board has no such memory; then nothing can be kept.
    """

    def __init__(self, files: Files, rtc_memory=None, rtc_bytes: int = 2048):
        self._files = files
        self._rtc_memory = rtc_memory
        self._rtc_bytes = rtc_bytes
        self.not_kept = 0  # states that did not fit

    @property
    def flash_writes(self) -> int:
        """Writes, renames and erasures of files since the start."""
        return self._files.writes

    def get(self, name: str):
        """What was put under a name, None where that is nothing or damaged."""
        return read_checked(self._files, name)

    def put(self, name: str, data) -> bool:
        """Writes data, unless it is there already; tells whether it wrote."""
        if self.get(name) == data:
            return False
        write_checked(self._files, name, data)
        return True

    def remove(self, name: str) -> None:
        for file in (name, name + ".new"):
            if self._files.read(file) is not None:
                self._files.remove(file)

    @property
    def frame_bytes(self) -> int:
        """Bytes of RTC memory beside the state itself."""
        return FRAME_BYTES

    @property
    def keeps(self) -> bool:
        """Whether this board has memory that survives deep sleep."""
        return self._rtc_memory is not None

    def keep(self, data) -> bool:
        """Keeps one state over deep sleep; False where it does not fit, and then the older one is gone, too."""
        if self._rtc_memory is None:
            return False
        frame = framed(data)
        fits = len(frame) <= self._rtc_bytes
        self._rtc_memory(frame if fits else b"")
        self.not_kept += not fits
        return fits

    def kept(self):
        """The state that was kept, None after a loss of power."""
        return None if self._rtc_memory is None else unframed(self._rtc_memory())
