"""Everything before the program starts that may take long: claim, arrive, fetch."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Optional

from . import sandbox
from .connection import Document, Gateway
from .errors import Cancelled, Fenced
from .home import Home
from .network import Ports, find_address
from .plan import Plan, decode
from .settings import Settings

if TYPE_CHECKING:
    from .fetch import Fetch
    from .save import Saves

VERSION = 1
_SHORTEST_POLL = 0.2


class GivenUp(Exception):
    """The service does not want the gang to start any more."""


class Ready(NamedTuple):
    plan: Plan
    ports: Ports
    bwrap: str
    saves: Optional[Saves]
    """None: the replica has no mounts."""


class Preparation:
    def __init__(self, settings: Settings, gateway: Gateway, home: Home) -> None:
        self._settings = settings
        self._gateway = gateway
        self._home = home
        self._cancelled = threading.Event()
        self._fetch: Optional[Fetch] = None

    def cancel(self) -> None:
        self._cancelled.set()
        if self._fetch:
            self._fetch.cancel()

    def claim(self) -> Document:
        """Raises RunnerError."""
        body = {
            "engine_id": self._settings.engine_id,
            "node": self._settings.node,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "version": VERSION,
        }
        claim = self._gateway.call("claim", body)
        if not claim.get("granted"):
            raise Fenced("the service does not grant this replica")
        return claim

    def run(self, ports: int) -> Ready:
        """Raises RunnerError, StagingError, OSError, Cancelled or GivenUp."""
        held = Ports(ports)
        bwrap = "" if self._settings.home else sandbox.find()
        plan = self._arrive(held, bwrap)
        self._home.prepare(plan)
        return Ready(plan, held, bwrap, self._stage(plan) if plan.mounts else None)

    def _stage(self, plan: Plan) -> Saves:
        # Imported here: they are a quarter of the start-up time, and most replicas do not need them.
        from .fetch import Fetch
        from .save import Saves

        saves = Saves(self._gateway, self._home, plan.mounts)
        self._fetch = Fetch(self._gateway, self._home, saves.fetched)
        if self._cancelled.is_set():
            raise Cancelled
        self._fetch.run(plan.mounts)
        return saves

    def _arrive(self, ports: Ports, bwrap: str) -> Plan:
        body = {
            "address": self._settings.address or find_address(self._settings.endpoint),
            "ports": ports.numbers,
            "home": self._home.path,
            "python": sys.executable,
            "path": self._settings.environment.get("PATH", ""),
            "sandbox": bool(bwrap),
            "mounted": bool(self._settings.home),
            "host": os.uname().nodename,
        }
        while True:
            begun = time.monotonic()
            answer = self._gateway.call("arrive", body, poll=True)
            if self._cancelled.is_set():
                raise Cancelled
            if answer.get("give_up"):
                raise GivenUp(str(answer["give_up"]))
            if answer.get("ready"):
                return decode(answer["plan"])
            # The service waits itself, but if it does not, it must not be flooded.
            self._cancelled.wait(max(_SHORTEST_POLL - (time.monotonic() - begun), 0))
