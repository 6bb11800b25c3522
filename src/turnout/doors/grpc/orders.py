"""What the service tells the process when it starts it, by its standard input."""

import msgspec


class Orders(msgspec.Struct, forbid_unknown_fields=True):
    host: str
    """Where to listen."""
    port: int
    rest: str
    """Where the service answers: `http://127.0.0.1:8470`."""
    certificate: str = ""
    """The chain, as PEM; empty: without TLS. The service itself answers with the same one."""
    key: str = ""
    no_auth: bool = False
    """The service knows its peers by whose sockets they are; behind this door it would see only this process."""
