"""Reads a compressed layer, and checks both of its digests: of the blob, and of the tar archive in it."""

import bz2
import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
import zlib
from typing import IO, Self

from turnout.images.tar import BadLayer

_PIECE = 1 << 20
_ZSTD = b"\x28\xb5\x2f\xfd"


class LayerBlob:
    """`read` gives the content of the archive. Call `check` at its end."""

    def __init__(self, path: str, most: int) -> None:
        """`most`: how many bytes the archive may have."""
        self._path = path
        self._file = _Hashed(open(path, "rb", buffering=0))  # noqa: SIM115 - closed by __exit__
        self._most = most
        self._read = 0
        self._digest = hashlib.sha256()
        self._process: subprocess.Popen[bytes] | None = None
        self._content = self._decompressed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
        self._file.close()

    def read(self, size: int) -> bytes:
        try:
            data = self._content.read(size)
        except (zlib.error, lzma.LZMAError, EOFError, gzip.BadGzipFile) as error:
            raise BadLayer(f"the layer cannot be decompressed: {error}") from None
        self._read += len(data)
        if self._read > self._most:
            raise BadLayer(f"the layer is more than {self._most} bytes large ([limits] image_bytes)")
        self._digest.update(data)
        return data

    def check(self, digest: str, diff_id: str) -> None:
        """Reads the rest. Raises BadLayer."""
        while self.read(_PIECE):
            pass
        if self._process:
            self._process.wait()
        while self._file.read(_PIECE):
            pass
        for what, wanted, found in (
            ("the layer", digest, self._file.digest.hexdigest()),
            ("the content of the layer", diff_id, self._digest.hexdigest()),
        ):
            if f"sha256:{found}" != wanted:
                raise BadLayer(f"{what} has the digest sha256:{found}, but the image names {wanted}")

    def _decompressed(self) -> "IO[bytes] | _Hashed":
        start = self._file.start(6)
        if start.startswith(b"\x1f\x8b"):
            return gzip.GzipFile(fileobj=self._file)  # type: ignore[arg-type]
        if start.startswith(b"BZh"):
            return bz2.BZ2File(self._file)  # type: ignore[arg-type]
        if start.startswith(b"\xfd7zXZ"):
            return lzma.LZMAFile(self._file)  # type: ignore[arg-type]
        if start.startswith(_ZSTD):
            return self._zstd()
        return self._file

    def _zstd(self) -> IO[bytes]:
        """By the program, because Python has no zstd before 3.14."""
        program = shutil.which("zstd", path="/usr/bin:/bin:/usr/local/bin")
        if program is None:
            raise BadLayer(
                "the layer is compressed with zstd, and the program zstd is not installed: apt-get install zstd"
            )
        source = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                [program, "--decompress", "--stdout", "--memory=128MB"],
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
            )
        finally:
            os.close(source)
        assert self._process.stdout
        return self._process.stdout


class _Hashed:
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def start(self, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, 0)

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data

    def close(self) -> None:
        self._file.close()
