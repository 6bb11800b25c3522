"""What a browser and a monitoring system see, and the gate of `--no-auth`."""

from turnout.web import tls
from turnout.web.dashboards import Dashboards
from turnout.web.gate import Gate
from turnout.web.peers import LocalPeersOnly, refusal_of
from turnout.web.protocol import LimitedProtocol
from turnout.web.shell import Shells
from turnout.web.status import page, routes
from turnout.web.visits import Visits

__all__ = [
    "Dashboards",
    "Gate",
    "LimitedProtocol",
    "LocalPeersOnly",
    "Shells",
    "Visits",
    "page",
    "refusal_of",
    "routes",
    "tls",
]
