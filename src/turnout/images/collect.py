"""Chooses the names to remove from the cache when it is too large. Pure."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from turnout.images.index import Index


def unused(index: Index, held: AbstractSet[str], most_bytes: int) -> list[str]:
    """The keys of names to remove, the longest unused first: imported images and those that a job holds stay."""
    names = sorted(index.names.items(), key=lambda item: item[1].used_at)
    kept = {digest for digest in index.images if digest in held}
    kept |= {one.digest for one in index.names.values()}
    gone: list[str] = []
    for where, one in names:
        if _bytes(index, kept) <= most_bytes:
            break
        if one.source or one.digest in held:
            continue
        gone.append(where)
        rest = {other.digest for at, other in names if at not in gone}
        kept = {digest for digest in kept if digest in rest or digest in held}
    return gone


def size_of(index: Index, held: AbstractSet[str], named: Iterable[str] | None = None) -> int:
    """Bytes of the images that have a name, or one of these digests, and of those that a job holds."""
    digests = (one.digest for one in index.names.values()) if named is None else named
    return _bytes(index, {*digests, *held})


def _bytes(index: Index, digests: AbstractSet[str]) -> int:
    layers = {
        diff_id for digest in digests if digest in index.images for diff_id in index.images[digest].diff_ids
    }
    return sum(index.layers[diff_id].bytes for diff_id in layers)
