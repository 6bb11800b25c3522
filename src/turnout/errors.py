"""The errors that callers see.

    TurnoutError
    ├── Invalid             a value is wrong; `field` names it as the caller spelled it
    ├── TooLarge            a request is larger than is accepted
    ├── Unauthenticated     the caller is unknown, or the signature is wrong
    ├── Denied              the caller is known, but may not do this
    ├── NotFound            no such job, cluster, ...
    ├── AlreadyExists       the name is taken
    ├── WrongState          it exists, but its state does not allow this
    ├── Unavailable         the resources do not exist here, and waiting does not help
    ├── OverQuota           the project may not use so much, or have so many jobs wait
    ├── Unsupported         this service does not do that
    ├── Busy                too many such requests at once; the same request may succeed later
    ├── TimedOut            the store or an engine did not answer in time
    ├── NotStored           the store could not write, or the service stops; the same request may succeed later
    └── Misconfigured       the operator must change the settings or the machine

Each is raised where the fact is known. Each dialect turns them into its cloud's answer in its `errors` module.
"""


class TurnoutError(Exception):
    """The message says what was wrong, where, and what would be right; it is shown to the user as it is."""

    def __init__(self, message: str, *, field: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.code = code
        """A dialect's own code, where the general mapping is too coarse."""


class Invalid(TurnoutError): ...


class TooLarge(TurnoutError): ...


class Unauthenticated(TurnoutError): ...


class Expired(Unauthenticated):
    """A token that was valid once: the client can get a new one by itself."""


class Denied(TurnoutError): ...


class NotFound(TurnoutError): ...


class AlreadyExists(TurnoutError): ...


class WrongState(TurnoutError): ...


class Unavailable(TurnoutError): ...


class OverQuota(TurnoutError): ...


class Unsupported(TurnoutError): ...


class Busy(TurnoutError): ...


class TimedOut(TurnoutError): ...


class NotStored(TurnoutError): ...


class Misconfigured(TurnoutError): ...
