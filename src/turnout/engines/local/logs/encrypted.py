"""A replica's encrypted log, as `turnout.vault.log_encrypter` writes it. Its marks count the decrypted bytes."""

from pathlib import Path

from turnout.engines.log_files import FileLog
from turnout.vault import KeyRing
from turnout.vault.frames import SEALED, FrameReader

_STREAMS = ("stdout", "stderr")


class EncryptedLog(FileLog):
    """`read` raises KeyGone without the key; sizes and marks are available."""

    def __init__(self, directory: Path, ring: KeyRing) -> None:
        super().__init__(directory)
        self._frames = [FrameReader(f"{directory}/{name}", ring) for name in _STREAMS]

    @staticmethod
    def is_at(directory: Path) -> bool:
        return (directory / f"{_STREAMS[0]}{SEALED}").exists()

    def size(self, stream: int) -> int:
        return self._frames[stream].size()

    def read(self, stream: int, offset: int, count: int) -> bytes:
        return self._frames[stream].read(offset, count)

    def hole(self, stream: int) -> tuple[int, int] | None:
        return self._frames[stream].hole()
