"""Pages for browsers, `/healthz` and `/metrics`, HTTP limits, and the access check of `--no-auth`."""

from turnout.web import tls
from turnout.web.browser_access import BrowserAccess
from turnout.web.browser_links import BrowserLinks
from turnout.web.dashboards import Dashboards
from turnout.web.peers import LocalPeersOnly, refusal_of
from turnout.web.protocol import LimitedProtocol
from turnout.web.shell import ShellPages
from turnout.web.status import page, routes

__all__ = [
    "BrowserAccess",
    "BrowserLinks",
    "Dashboards",
    "LimitedProtocol",
    "LocalPeersOnly",
    "ShellPages",
    "page",
    "refusal_of",
    "routes",
    "tls",
]
