"""What a browser and a monitoring system see, and the gate of `--no-auth`."""

from turnout.web.peers import LocalPeersOnly, refusal_of
from turnout.web.protocol import LimitedProtocol
from turnout.web.status import page, routes

__all__ = ["LimitedProtocol", "LocalPeersOnly", "page", "refusal_of", "routes"]
