"""What a key may look like so that it can be a path of names below a bucket's directory."""

from turnout.errors import Invalid
from turnout.storage.source import LONGEST_NAME, LONGEST_PATH, UNFIT

_DEEPEST = 100


def split(key: str) -> tuple[str, ...]:
    """The names on the way; the last one is empty where the key means a directory. Raises Invalid."""
    parts = tuple(key.split("/"))
    shown = repr(key if len(key) < 100 else key[:99] + "…")
    if UNFIT.search(key):
        raise _unfit(f"the key {shown} has a control character or bytes that are no text in it")
    if len(key.encode()) > LONGEST_PATH or len(parts) > _DEEPEST:
        raise _unfit(f"the key {shown} is longer than {LONGEST_PATH} bytes or deeper than {_DEEPEST} names")
    names = parts[:-1] if len(parts) > 1 and not parts[-1] else parts
    if any(name in ("", ".", "..") for name in names):
        raise _unfit(
            f"the key {shown} must be names with single slashes between, and none of them `.` or `..`"
        )
    if any(len(name.encode()) > LONGEST_NAME for name in names):
        raise _unfit(f"the key {shown} has a name of more than {LONGEST_NAME} bytes in it")
    return parts


def can_be_key(path: str) -> bool:
    """Whether what a job has put there can be named by a key at all."""
    try:
        split(path)
    except Invalid:
        return False
    return True


def _unfit(message: str) -> Invalid:
    return Invalid(message, field="key")
