"""The process that makes private networks."""

import subprocess
import sys

KILLED_MEANWHILE = """
import os, signal, sys
from turnout.runner.supervisor.network import namespaces
def expect(connection, expected):
    if expected == sys.argv[1].encode():
        os.kill(os.getpid(), signal.SIGKILL)
    connection.recv(1 << 16)
namespaces._expect = expect
namespaces.write_maps = lambda pid: None
namespaces.fork_maker(-1, namespaces.Options())
"""


def test_it_ends_with_a_supervisor_that_is_killed_while_it_starts() -> None:
    """Otherwise it would keep the supervisor's socket, and the next service would talk to nobody."""
    for step in ("namespace", "ready"):
        # Its output is closed when it has ended too.
        program = [sys.executable, "-c", KILLED_MEANWHILE, step]
        assert subprocess.run(program, stdout=subprocess.PIPE, timeout=30).returncode == -9
