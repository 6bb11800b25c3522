"""A replica's log as a pump keeps it (`turnout.vault.pump`): sealed, with marks that count what is in it."""

from pathlib import Path

from turnout.engines.local.log import FileLog
from turnout.vault import KeyRing
from turnout.vault.frames import SEALED, SealedFrames

_STREAMS = ("stdout", "stderr")


class SealedLog(FileLog):
    """Reading raises KeyGone when the key is gone; sizes and marks can still be had."""

    def __init__(self, directory: Path, ring: KeyRing) -> None:
        super().__init__(directory)
        self._frames = [SealedFrames(f"{directory}/{name}", ring) for name in _STREAMS]

    @staticmethod
    def is_at(directory: Path) -> bool:
        return (directory / f"{_STREAMS[0]}{SEALED}").exists()

    def size(self, stream: int) -> int:
        return self._frames[stream].size()

    def read(self, stream: int, offset: int, count: int) -> bytes:
        return self._frames[stream].read(offset, count)

    def hole(self, stream: int) -> tuple[int, int] | None:
        return self._frames[stream].hole()
