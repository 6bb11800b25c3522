"""Lists a bucket in a remote store, in pages, in the order of the keys' bytes."""

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from turnout.errors import Unsupported
from turnout.storage.embedded.attributes import Info
from turnout.storage.embedded.listing import ObjectPage
from turnout.storage.remote.facts import describe

if TYPE_CHECKING:
    from turnout.storage.remote.store import ObjectStore

_KEPT_SECONDS = 60.0
_KEPT_ENTRIES = 100_000
_LAST = "\U0010ffff"


class _Entry(NamedTuple):
    name: str
    info: Info | None
    """None for a common prefix."""


class Listing:
    """A level (the delimiter `/`) is read whole, as obstore has it, and kept for a minute for its next pages."""

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store
        self._lock = threading.Lock()
        self._levels: OrderedDict[str, tuple[float, list[_Entry]]] = OrderedDict()

    def page(self, prefix: str, delimiter: str, after: str, limit: int) -> ObjectPage:
        """Blocks. As `EmbeddedStore.list`."""
        if limit <= 0:
            return ObjectPage([], [], "")
        if delimiter not in ("", "/"):
            raise Unsupported("only / is supported as a delimiter for a bucket in a remote store")
        if delimiter:
            return self._level_page(prefix, after, limit)
        return self._flat_page(prefix, after, limit)

    def _flat_page(self, prefix: str, after: str, limit: int) -> ObjectPage:
        folder, slash, rest = prefix.rpartition("/")
        offset = max(after, _just_before(prefix)) or None
        objects: list[Info] = []
        for metas in self._store.list(folder or None, offset=offset, chunk_size=min(limit + 1, 1000)):
            for meta in metas:
                path = meta["path"]
                if not path.startswith(prefix):
                    # By names and not by keys: some stores sort the names of each directory.
                    if path.removeprefix(folder + slash).partition("/")[0] > rest:
                        return ObjectPage(objects, [], "")
                    continue
                if objects and _is_marker(objects[-1], path):
                    objects.pop()
                if len(objects) == limit:
                    return ObjectPage(objects, [], objects[-1].key)
                objects.append(describe(meta))
        return ObjectPage(objects, [], "")

    def _level_page(self, prefix: str, after: str, limit: int) -> ObjectPage:
        entries = self._level(prefix.rpartition("/")[0], continues=bool(after))
        found = [entry for entry in entries if entry.name > after and entry.name.startswith(prefix)]
        page = found[:limit]
        return ObjectPage(
            [entry.info for entry in page if entry.info],
            [entry.name for entry in page if not entry.info],
            page[-1].name if len(found) > limit else "",
        )

    def _level(self, folder: str, continues: bool) -> list[_Entry]:
        with self._lock:
            kept = self._levels.get(folder)
        if continues and kept and kept[0] > time.monotonic():
            return kept[1]
        found: Any = self._store.list_with_delimiter(folder or None)
        entries = [_Entry(f"{name}/", None) for name in found["common_prefixes"]]
        entries += (_Entry(meta["path"], describe(meta)) for meta in found["objects"])
        entries.sort(key=lambda entry: entry.name)
        with self._lock:
            self._levels.pop(folder, None)
            self._levels[folder] = (time.monotonic() + _KEPT_SECONDS, entries)
            while sum(len(level) for _, level in self._levels.values()) > _KEPT_ENTRIES:
                self._levels.popitem(last=False)
        return entries


def _is_marker(info: Info, following: str) -> bool:
    """An empty object `a/` stands for a directory in some stores; obstore calls it `a`."""
    return not info.size and following.startswith(f"{info.key}/")


def _just_before(prefix: str) -> str:
    """A key after which all keys with this prefix come, and few others."""
    last = ord(prefix[-1]) - 1 if prefix else 0
    if last <= 0:
        return ""
    return prefix[:-1] + chr(0xD7FF if 0xD800 <= last <= 0xDFFF else last) + _LAST
