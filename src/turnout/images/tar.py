"""Reads a layer's tar stream: POSIX, GNU and PAX, as Docker, podman, buildah and umoci write them.

It trusts nothing: numbers and texts have limits, and what it does not know is refused.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from turnout.errors import Invalid

_BLOCK = 512
_LONGEST_EXTENSION = 1 << 20
_LONGEST_NAME = 4096
_MOST_RECORDS = 1000
_LONGEST_LENGTH = 20
"""How far the length of a PAX record may go, with its space."""
_PIECE = 1 << 20
_MOST_SECONDS = 1 << 40
_EXTENSIONS = {b"x", b"L", b"K"}
_TYPES: dict[bytes, str] = {
    b"0": "file", b"\0": "file", b"7": "file", b"1": "hard link", b"2": "link", b"3": "character device",
    b"4": "block device", b"5": "directory", b"6": "pipe",
}  # fmt: skip


class BadLayer(Invalid):
    """The layer is damaged, or does what a layer may not do."""


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Entry(NamedTuple):
    name: bytes
    kind: str
    """`file`, `directory`, `link`, `hard link`, or something that no layer needs."""
    mode: int
    size: int
    mtime: int
    """Nanoseconds."""
    target: bytes
    """Of a link."""


class TarReader:
    """Iterate over `entries`; read the content of a file by `content` before the next entry."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._rest = 0
        """What is left of the content of this entry."""
        self._padding = 0

    def entries(self) -> Iterator[Entry]:
        """Raises BadLayer."""
        extended: dict[str, bytes] = {}
        while True:
            self._skip()
            header = self._header()
            if header is None:
                return
            kind = header[156:157]
            size = _number(header[124:136])
            if kind in _EXTENSIONS or kind == b"g":
                data = self._extension(size)
                if kind == b"x":
                    extended |= _records(data)
                elif kind != b"g":
                    extended["path" if kind == b"L" else "linkpath"] = data.rstrip(b"\0")
                elif _records(data).keys() & {"path", "linkpath", "size"}:
                    raise BadLayer("the layer has a global header that renames its files")
                continue
            yield self._entry(header, kind, size, extended)
            extended = {}

    def content(self) -> Iterator[bytes]:
        while self._rest:
            data = self._stream.read(min(self._rest, _PIECE))
            if not data:
                raise _truncated()
            self._rest -= len(data)
            yield data

    def _entry(self, header: bytes, kind: bytes, size: int, extended: dict[str, bytes]) -> Entry:
        if kind == b"S" or any(key.startswith("GNU.sparse") for key in extended):
            raise BadLayer("the layer has sparse files of GNU tar: make it without --sparse")
        if kind not in _TYPES:
            raise BadLayer(f"the layer has an entry of the unknown type {kind!r}")
        name = extended.get("path") or _name(header)
        target = extended.get("linkpath") or _text(header[157:257])
        if "size" in extended:
            size = _decimal(extended["size"])
        if not name or max(len(name), len(target)) >= _LONGEST_NAME or b"\0" in name + target:
            raise BadLayer("the layer has an entry with an impossible name")
        known = _TYPES[kind]
        if known == "file" and name.endswith(b"/"):
            known = "directory"  # as in the oldest tar
        if known == "file":
            self._rest, self._padding = size, -size % _BLOCK
        seconds = _seconds(extended["mtime"]) if "mtime" in extended else _number(header[136:148]) * 10**9
        mode = _number(header[100:108]) & 0o7777
        return Entry(
            name, known, mode, size if known == "file" else 0, min(seconds, _MOST_SECONDS * 10**9), target
        )

    def _header(self) -> bytes | None:
        """None at the end."""
        header = self._read(_BLOCK, may_end=True)
        if not header or not any(header):
            return None
        unsigned = sum(header[:148]) + sum(header[156:]) + 8 * 32
        if _number(header[148:156]) != unsigned:
            raise BadLayer("the layer is not a tar archive, or is damaged: a header has a wrong checksum")
        return header

    def _extension(self, size: int) -> bytes:
        if size > _LONGEST_EXTENSION:
            raise BadLayer("the layer has a header of more than a megabyte")
        data = self._read(size)
        self._read(-size % _BLOCK)
        return data

    def _skip(self) -> None:
        for _ in self.content():
            pass
        self._read(self._padding)
        self._padding = 0

    def _read(self, size: int, may_end: bool = False) -> bytes:
        data = b""
        while len(data) < size:
            more = self._stream.read(size - len(data))
            if not more:
                if may_end and not data:
                    return b""
                raise _truncated()
            data += more
        return data


def _name(header: bytes) -> bytes:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Octal, or GNU's binary form."""
    if field[0] & 0x80:
        if field[0] & 0x40:
            if len(field) == 12 and field[0] == 0xFF:
                return 0  # a time before 1970; a negative size ends here too, as an empty file
            raise BadLayer("the layer has a negative number in a header")
        return int.from_bytes(bytes([field[0] & 0x3F]) + field[1:], "big")
    text = field.replace(b"\0", b" ").strip()
    try:
        return int(text or b"0", 8)
    except ValueError:
        raise BadLayer("the layer has a header with an invalid number") from None


def _records(data: bytes) -> dict[str, bytes]:
    """The records of a PAX header: `<length> <key>=<value>` and a line feed."""
    found: dict[str, bytes] = {}
    start = 0
    while start < len(data):
        space = data.find(b" ", start, start + _LONGEST_LENGTH)
        end = start + _decimal(data[start:space] if space >= 0 else b"")
        equals = data.find(b"=", space, end)
        # A record has at least `=` and its line feed, so each one ends further on.
        if equals < 0 or end > len(data) or data[end - 1 : end] != b"\n":
            raise BadLayer("the layer has an invalid PAX header")
        found[data[space + 1 : equals].decode("utf-8", "replace")] = data[equals + 1 : end - 1]
        if len(found) > _MOST_RECORDS:
            raise BadLayer("the layer has a PAX header with too many records")
        start = end
    return found


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise BadLayer("the layer has an invalid number in a PAX header")
    return int(text)


def _seconds(text: bytes) -> int:
    whole, _, fraction = text.partition(b".")
    if whole.startswith(b"-"):
        return 0
    return _decimal(whole or b"0") * 10**9 + _decimal((fraction + b"0" * 9)[:9])


def _truncated() -> BadLayer:
    return BadLayer("the layer ends in the middle of a file")
