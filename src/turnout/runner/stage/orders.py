"""What the mover is told, and what it answers: one JSON object a line.

First a Hello. Then Orders, which run at the same time, and cancellations of them. Each order is answered by any number
of Answers with `progress`, two a second at most, and one with `done`, `failed` or `cancelled`.
"""

import msgspec

from turnout.storage.remote import PATIENCE, Backing


class Hello(msgspec.Struct, omit_defaults=True):
    uid: int = -1
    """Whom to become, for good; -1: stay."""
    gid: int = -1
    patience: float = PATIENCE
    """Seconds that an ailing store is asked again before an order fails."""


class Item(msgspec.Struct, rename={"from_": "from"}, omit_defaults=True):
    backing: Backing
    """With the credentials: see `remote.carried`."""
    prefix: str = ""
    """`a/b/` and all that is in it, or the one object `a/b.txt`; empty: the whole bucket."""
    url: str = ""
    """What the user calls it, for messages; empty: as the backing has it."""
    to: str = ""
    """in: a directory that is there; an object's keys below the prefix become paths below it."""
    from_: str = ""
    """out: a directory, or one file, which becomes the object `prefix` (or `prefix/name` if that ends in a slash)."""
    state: str = ""
    """A file of the mover's own: what was moved already. The same one for in and out of a directory: what came in and
    was not changed does not go out again. Its directory must be there and writable; empty: nothing is remembered."""
    optional: bool = False
    """in: it is fine if there is nothing."""
    growing: bool = False
    """out: files are only ever appended to, so that what is there can be taken while they grow (logs)."""

    @property
    def called(self) -> str:
        return self.url or f"{self.backing.url.rstrip('/')}/{self.prefix}"


class Order(msgspec.Struct, omit_defaults=True):
    id: int
    do: str = ""
    """in or out."""
    items: list[Item] = []
    final: bool = True
    """out: nobody writes any more, so that every file is taken. Otherwise what changed within the last second waits."""
    cancel: bool = False
    """End the order of this id, which is answered by `cancelled`."""


class Progress(msgspec.Struct):
    files: int
    bytes: int
    of_bytes: int
    """Of what has been found so far."""


class Done(msgspec.Struct):
    files: int
    """Moved just now; what was there already does not count."""
    bytes: int
    waiting: int = 0
    """out: files that are changing and were left for the next time."""
    warnings: list[str] = []
    """out: what was left out for good, and why: the first few."""


class Answer(msgspec.Struct, omit_defaults=True):
    id: int
    progress: Progress | None = None
    done: Done | None = None
    failed: str = ""
    reason: str = ""
    """The kind of failure: the name of one of `turnout.errors`, or NoSpace."""
    cancelled: bool = False
