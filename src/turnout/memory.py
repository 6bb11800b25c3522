"""Returns free memory of the C library to the system."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE = 256 << 10
_ARENAS = 2


def prepare() -> None:
    """Makes the C library map large blocks one by one, so that each is returned when it is freed.

    By default glibc maps fewer and fewer blocks: each one that is freed raises the size from which it maps blocks.
    """
    library = _glibc()
    if library:
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        library.mallopt(_M_TRIM_THRESHOLD, _LARGE)
        # Otherwise every thread may have its own heap.
        library.mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Returns the free space between small blocks that are in use. Takes a few milliseconds."""
    library = _glibc()
    if library:
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
