"""What is free on each node, and the first node with enough room, found without reading every node."""

from collections.abc import Iterable, Mapping

from turnout.job.resources import Share


class NodeIndex:
    """A binary tree over the nodes in their order. Each inner entry has the maximum of each resource below it."""

    def __init__(self, free: Mapping[str, Share]) -> None:
        self._names = list(free)
        self._leaf = 1 << max(0, len(self._names) - 1).bit_length()
        self._position = {name: self._leaf + number for number, name in enumerate(self._names)}
        padding = [_NO_ROOM] * (self._leaf - len(self._names))
        self._tree = [_NO_ROOM] * self._leaf + list(free.values()) + padding
        for number in range(self._leaf - 1, 0, -1):
            self._tree[number] = _most(self._tree[2 * number], self._tree[2 * number + 1])

    def copy(self) -> "NodeIndex":
        made = NodeIndex.__new__(NodeIndex)
        made._names, made._leaf, made._position = self._names, self._leaf, self._position
        made._tree = self._tree.copy()
        return made

    def __contains__(self, name: str) -> bool:
        return name in self._position

    def __getitem__(self, name: str) -> Share:
        return self._tree[self._position[name]]

    def change(self, name: str, by: Share) -> None:
        tree, number = self._tree, self._position[name]
        tree[number] += by
        while number > 1:
            number //= 2
            most = _most(tree[2 * number], tree[2 * number + 1])
            if tree[number] == most:
                return
            tree[number] = most

    def first_fit(self, wants: Iterable[Share]) -> list[str] | None:
        """A node for each share, the first in order that has room beside those before it; None: they do not all fit."""
        found: list[str] = []
        taken: list[Share] = []
        for want in wants:
            name = self._first(want)
            if name is None:
                break
            self.change(name, want.times(-1))
            found.append(name)
            taken.append(want)
        else:
            name = ""
        for node, want in zip(found, taken, strict=True):
            self.change(node, want)
        return None if name is None else found

    def _first(self, want: Share) -> str | None:
        tree, leaf = self._tree, self._leaf
        waiting = [1]
        while waiting:
            number = waiting.pop()
            if want.fits(tree[number]):
                if number >= leaf:
                    return self._names[number - leaf]
                waiting += (2 * number + 1, 2 * number)
        return None


_NO_ROOM = Share(-1, -1, -1)


def _most(one: Share, other: Share) -> Share:
    return Share(max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2]))
