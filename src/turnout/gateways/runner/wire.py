"""The documents that runners send."""

from typing import Any

import msgspec

from turnout.engines.remote.logs import Piece, RunnerMark
from turnout.engines.remote.runner_calls import RunnerSample
from turnout.errors import Invalid

MOST_BYTES = 1 << 20
"""Of logs in one call."""
_MOST_HEADER = 1 << 20
LARGEST = MOST_BYTES + _MOST_HEADER


class Claim(msgspec.Struct, frozen=True):
    engine_id: str = ""
    node: str = ""


class Start(msgspec.Struct, frozen=True):
    restarts: int
    pid: int
    at: int


class Wait(msgspec.Struct, frozen=True):
    seen: int = 0


class PutObject(msgspec.Struct, frozen=True):
    key: str
    size: int


class Stage(msgspec.Struct, frozen=True):
    op: str
    mount: int
    after: str = ""
    objects: list[PutObject] = []


class SavedReport(msgspec.Struct, frozen=True):
    files: int = 0
    bytes: int = 0
    trouble: str = ""


class ShellInput(msgspec.Struct, frozen=True):
    after: int = 0


class _LogPiece(msgspec.Struct, frozen=True):
    stream: int
    offset: int
    size: int


class Tell(msgspec.Struct, frozen=True):
    """The first line of a `tell`; the bytes of its pieces follow."""

    pieces: list[_LogPiece] = []
    marks: list[tuple[int, int, int]] = []
    samples: list[RunnerSample] = []
    idle: float | None = None
    files: dict[str, str] = {}


def decode_tell(body: bytes) -> tuple[Tell, list[Piece], list[RunnerMark]]:
    line, _, data = body.partition(b"\n")
    tell = decode(line, Tell)
    pieces: list[Piece] = []
    at = 0
    for piece in tell.pieces:
        if piece.stream not in (0, 1) or piece.offset < 0 or not 0 <= piece.size <= len(data) - at:
            raise Invalid(f"pieces: {piece} does not fit the {len(data)} bytes that follow")
        pieces.append(Piece(piece.stream, piece.offset, data[at : at + piece.size]))
        at += piece.size
    return tell, pieces, [RunnerMark(*mark) for mark in tell.marks]


def decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Invalid(f"the body is not what this call takes: {error}") from None
