"""The waiting jobs in order, so that the position of one is found without reading all of them."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

Rank = tuple[bool, int, int]
"""Sorts first what starts first. The last number is the job's id."""

_MOST = 2000
"""A chunk with more ranks is split."""


class Ranking:
    """Sorted ranks in chunks, each of which is a sorted list."""

    def __init__(self) -> None:
        self._chunks: list[list[Rank]] = []
        self._last: list[Rank] = []
        """The last rank of each chunk."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rank: Rank) -> None:
        self._count += 1
        if not self._chunks:
            self._chunks.append([])
            self._last.append(rank)
        number = min(bisect_left(self._last, rank), len(self._chunks) - 1)
        chunk = self._chunks[number]
        insort(chunk, rank)
        if len(chunk) > _MOST:
            half = len(chunk) // 2
            self._chunks[number : number + 1] = [chunk[:half], chunk[half:]]
            self._last.insert(number, chunk[half - 1])
            number += 1
        self._last[number] = self._chunks[number][-1]

    def remove(self, rank: Rank) -> None:
        self._count -= 1
        number = bisect_left(self._last, rank)
        chunk = self._chunks[number]
        del chunk[bisect_left(chunk, rank)]
        if chunk:
            self._last[number] = chunk[-1]
        else:
            del self._chunks[number], self._last[number]

    def position(self, rank: Rank) -> int:
        """How many come before it."""
        number = bisect_left(self._last, rank)
        return sum(map(len, islice(self._chunks, number))) + bisect_left(self._chunks[number], rank)

    def __iter__(self) -> Iterator[Rank]:
        for chunk in self._chunks:
            yield from chunk
