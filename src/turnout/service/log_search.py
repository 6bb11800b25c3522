"""Searches logs quickly: skips the parts in which no line can match, without splitting them into lines."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from turnout.service.lines import Stream

_PIECE = 1 << 18


class Wanted(NamedTuple):
    """The lines that a search is for."""

    matches: Callable[[str], object]
    words: tuple[bytes, ...] = ()
    """In lower case: each line that matches has one of them, in whatever case. Empty: any line may match."""


def skip(stream: Stream, offset: int, since: int, words: Sequence[bytes], most: int) -> int:
    """The beginning of the first line that may match, or of one `most` bytes further on. `offset` begins a line."""
    position = begin = max(offset, stream.beginning(since))
    overlap = max(map(len, words)) - 1
    end = min(stream.end, begin + most)
    while position < end:
        position = stream.outside_hole(position)
        text = stream.read(position, _PIECE).lower()
        found = [place for word in words if (place := text.find(word)) >= 0]
        if found:
            return max(begin, stream.line_start(min(position + min(found), end)))
        if not text:
            break
        # A word may lie across the end of the piece.
        position += len(text) - overlap if len(text) > overlap else len(text)
    return max(begin, end if end == stream.end else stream.line_start(end))
