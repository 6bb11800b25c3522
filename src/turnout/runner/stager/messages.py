"""The messages of the stager: one JSON object per line.

The first line is a StagerSetup. TransferOrders and their cancellations follow; orders run concurrently. Each order gets
any number of replies with `progress`, at most two a second, and one with `done`, `failed` or `cancelled`.
"""

import msgspec

from turnout.child_processes import bootstrap
from turnout.storage.remote.settings import RemoteSettings
from turnout.storage.remote.store import PATIENCE


class StagerSetup(bootstrap.Setup, omit_defaults=True):
    patience: float = PATIENCE
    """Seconds of retries on an unavailable store before an order fails."""


class TransferItem(msgspec.Struct, rename={"from_": "from"}, omit_defaults=True):
    backing: RemoteSettings
    """With the credentials: see `with_credentials` in `turnout.storage.remote.settings`."""
    prefix: str = ""
    """`a/b/` for everything below it, `a/b.txt` for one object, empty for the whole bucket."""
    url: str = ""
    """The URL that the user gave, for messages; empty: the URL of the backing."""
    to: str = ""
    """in: an existing directory; keys below the prefix become paths below it."""
    from_: str = ""
    """out: a directory, or one file, which becomes the object `prefix` (or `prefix/name` if that ends in a slash)."""
    state: str = ""
    """The file of the transfer log, in an existing, writable directory; empty: no log. Use the same one for in and out
    of a directory: a file that came in and was not changed is not uploaded again."""
    optional: bool = False
    """in: it is no error if there are no objects."""
    growing: bool = False
    """out: files are only appended to (logs), so they can be uploaded while they grow."""

    @property
    def display_url(self) -> str:
        return self.url or f"{self.backing.url.rstrip('/')}/{self.prefix}"


class TransferOrder(msgspec.Struct, omit_defaults=True):
    id: int
    do: str = ""
    """`in` or `out`."""
    items: list[TransferItem] = []
    final: bool = True
    """out: no process writes any more, so every file is uploaded. Otherwise files changed within a second wait."""
    cancel: bool = False
    """Cancel the order with this id; its reply is `cancelled`."""


class TransferProgress(msgspec.Struct):
    files: int
    bytes: int
    of_bytes: int
    """The size of all files found so far."""


class TransferResult(msgspec.Struct):
    files: int
    """Transferred by this order, without files that were up to date."""
    bytes: int
    waiting: int = 0
    """out: files that were changing and are left for the next order."""
    warnings: list[str] = []
    """out: the first few files that were skipped, and why."""


class TransferReply(msgspec.Struct, omit_defaults=True):
    id: int
    progress: TransferProgress | None = None
    done: TransferResult | None = None
    failed: str = ""
    cancelled: bool = False
