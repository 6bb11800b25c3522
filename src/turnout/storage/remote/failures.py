"""What the store of a bucket answers to clients, as our errors."""

import contextlib
from collections.abc import Iterator

from turnout.errors import AlreadyExists, Invalid, Misconfigured, NotFound, TimedOut, TurnoutError, WrongState
from turnout.storage.remote.errors import explain


@contextlib.contextmanager
def explained(url: str, key: str = "") -> Iterator[None]:
    """`url`: the bucket's, as the client knows it. Raises TimedOut also for what only the operator can mend.

    Raises Invalid for a key that obstore does not take.
    """
    where = f"{url}/{key}" if key else url
    try:
        yield
    except TurnoutError:
        raise
    except Exception as error:  # noqa: BLE001 (obstore's errors have no common class; `explain` knows them)
        match type(error).__name__:
            case "AlreadyExistsError":
                raise AlreadyExists(f"{where} exists") from None
            case "PreconditionError":
                raise WrongState(f"{where} was changed meanwhile") from None
        found = explain(error, where).error
        if isinstance(error, ValueError):
            raise Invalid(found.message, field="key") from None
        if isinstance(found, Misconfigured):
            raise TimedOut(found.message) from None
        if isinstance(found, NotFound) and "NoSuchBucket" in str(error):
            raise no_bucket(url) from None
        raise found from None


def no_bucket(url: str) -> NotFound:
    return NotFound(f"there is no bucket {url} in its store", field="bucket")
