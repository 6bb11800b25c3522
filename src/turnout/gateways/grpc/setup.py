"""The first line that the gRPC process reads from its standard input."""

from turnout.child_processes.bootstrap import Setup


class GatewaySetup(Setup, forbid_unknown_fields=True):
    listener: int
    """The descriptor of the socket to accept connections from. The service made it and keeps a copy."""
    host: str
    """The address that clients use. For 0.0.0.0 or ::, each client's own connection decides."""
    rest: str
    """The endpoint of the REST API: `http://127.0.0.1:8470`."""
    certificate: str = ""
    """The certificate chain of the service, as PEM; empty: without TLS."""
    key: str = ""
    no_auth: bool = False
    """Callers are authenticated by the user who owns their socket. This process makes the check, because the service
    sees only the sockets of this process.
    """
    operator: int = 0
    """The user id of the service. With `no_auth` only this user's programs may call."""
    secret: str = ""
    """With `no_auth`: proves to the service that a call comes from this process."""
