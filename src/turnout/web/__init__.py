"""Pages for browsers, `/healthz` and `/metrics`, HTTP limits, and the access check of `--no-auth`."""

from turnout.web import tls
from turnout.web.browser_access import BrowserAccess
from turnout.web.browser_links import BrowserLinks
from turnout.web.metrics import MetricSources
from turnout.web.page import Page, PageFiles
from turnout.web.peers import LocalPeersOnly, refusal_of
from turnout.web.program_pages import ProgramPages
from turnout.web.protocol import LimitedProtocol
from turnout.web.proxies import TrustedProxies
from turnout.web.recorder import Recorder, RequestTimes
from turnout.web.shell import ShellPages
from turnout.web.status import home_text, routes

__all__ = [
    "BrowserAccess",
    "BrowserLinks",
    "LimitedProtocol",
    "LocalPeersOnly",
    "MetricSources",
    "Page",
    "PageFiles",
    "ProgramPages",
    "Recorder",
    "RequestTimes",
    "ShellPages",
    "TrustedProxies",
    "home_text",
    "refusal_of",
    "routes",
    "tls",
]
