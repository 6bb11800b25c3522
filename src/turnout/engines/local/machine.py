"""What this machine is and has, found out once when the engine opens."""

import os
import pwd
import socket
import subprocess
import sys
from pathlib import Path

from turnout import config
from turnout.config import Settings
from turnout.engines.local.link import Account
from turnout.job import Node
from turnout.paths import Paths
from turnout.runner.plan import Layout, Runtime


class Machine:
    account: Account
    layout: Layout
    node: Node

    @classmethod
    def prepare(cls, paths: Paths, settings: Settings) -> "Machine":
        self = cls()
        self._paths = paths
        self.account = Account(pwd.getpwuid(os.geteuid()).pw_name)
        if os.geteuid() == 0:
            name = settings.engines.local.user
            try: entry = pwd.getpwnam(name)
            except KeyError:
                subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True)
                entry = pwd.getpwnam(name)
            self.account = Account(name, entry.pw_uid, entry.pw_gid)
        paths.data.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0: os.chmod(paths.data, 0o711)
        for d in (paths.attempts, paths.keeper):
            d.mkdir(exist_ok=True, mode=0o700)
            if self.account.uid >= 0: os.chown(d, self.account.uid, self.account.gid)
        shim = paths.runtimes / "host"
        shim.mkdir(parents=True, exist_ok=True)
        os.chmod(paths.runtimes, 0o755)
        self._runtime = Runtime("/usr/bin/python3", str(shim))
        self.layout = Layout(processes=settings.limits.processes, log_bytes=settings.limits.log_bytes, user=self.account.name)
        gpus = settings.engines.local.gpus
        cores = len(os.sched_getaffinity(0))
        self.node = Node(socket.gethostname(), cores * settings.engines.local.overcommit, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), gpus if isinstance(gpus, int) else 0)
        return self

    def runtime(self, name: str) -> Runtime:
        return self._runtime

    def describe(self, name: str) -> str:
        return "Python 3 (/usr/bin/python3)"
