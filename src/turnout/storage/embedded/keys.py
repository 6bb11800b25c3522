"""Which keys can be paths below a bucket's directory."""

from turnout.errors import Invalid
from turnout.storage.source import MAX_NAME, MAX_PATH, UNFIT

_DEEPEST = 100


def split(key: str) -> tuple[str, ...]:
    """The names in the key. The last one is empty if the key ends with a slash. Raises Invalid."""
    parts = tuple(key.split("/"))
    shown = repr(key if len(key) < 100 else key[:99] + "…")
    if UNFIT.search(key):
        raise _unfit(f"the key {shown} has a control character or is not valid UTF-8")
    if len(key.encode()) > MAX_PATH or len(parts) > _DEEPEST:
        raise _unfit(f"the key {shown} is longer than {MAX_PATH} bytes or deeper than {_DEEPEST} names")
    names = parts[:-1] if len(parts) > 1 and not parts[-1] else parts
    if any(name in ("", ".", "..") for name in names):
        raise _unfit(
            f"the key {shown} must be names separated by single slashes, and none of them `.` or `..`"
        )
    if any(len(name.encode()) > MAX_NAME for name in names):
        raise _unfit(f"the key {shown} has a name of more than {MAX_NAME} bytes")
    return parts


def can_be_key(path: str) -> bool:
    """Whether a file that a job made can have a key."""
    try:
        split(path)
    except Invalid:
        return False
    return True


def _unfit(message: str) -> Invalid:
    return Invalid(message, field="key")
