"""Attacks of jobs on other jobs, for tests as root and as an ordinary user."""

import asyncio
import os
from pathlib import Path
from typing import Any, NamedTuple

from tests.engines.local.harness import MASTER, EngineHarness, accounts_in, kinds, owners
from tests.storage.binding import bind
from turnout.job import Mount
from turnout.storage import Storage
from turnout.vault import KeyRing

SHARED = "cos://open-to-all"

_MEET = """
import os, pathlib, signal, socket, sys, time
shared = os.environ.get("TURNOUT_MOUNT_0")
if shared:
    os.chdir(shared)
address = "meeting-point" if shared else "\\0" + sys.argv[1]
line = socket.socket(socket.AF_UNIX)
home, tmp = os.environ["HOME"], os.environ.get("TMPDIR", "/tmp")
"""

ACCOMPLICE = (
    _MEET
    + """
line.bind(address)
if shared:
    os.chmod("meeting-point", 0o777)
line.listen()
print("ready", flush=True)
line.settimeout(float(sys.argv[2]))
try:
    _, fds, _, _ = socket.recv_fds(line.accept()[0], 1, 3)
except TimeoutError:
    fds = []
print("has", len(fds), flush=True)
while True:
    for directory in fds[:2]:
        try:
            plant = os.open("json.py", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=directory)
            os.write(plant, b"print('planted')")
            os.close(plant)
            print(sorted(os.listdir(directory)), flush=True)
        except OSError as error:
            print(error.strerror, flush=True)
    for out in fds[2:]:
        os.write(out, b"evil")
    print("planted", flush=True)
    time.sleep(0.01)
"""
)

SENDER = (
    _MEET
    + """
os.chmod(home, 0o777)
os.chmod(tmp, 0o777)
line.connect(address)
fds = [os.open(home, os.O_RDONLY), os.open(tmp, os.O_RDONLY), os.dup(1)]
socket.send_fds(line, [b"x"], fds)
"""
)

VICTIM = """
import json, os, pathlib
home, tmp = os.environ["HOME"], os.environ.get("TMPDIR", "/tmp")
pathlib.Path(home, "secret").touch()
print(sorted(os.listdir(home)), sorted(os.listdir(tmp)), len(json.__all__))
"""

ATTACKS = """
import ctypes, os, signal, sys
pid, home, bucket, supervisor = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
attempts, data = os.path.dirname(home), os.path.dirname(os.path.dirname(home))
def attempt(name, what):
    try:
        what()
    except OSError as error:
        print(name, error.strerror)
    else:
        print(name, "DONE")
def ptrace():
    if ctypes.CDLL(None, use_errno=True).ptrace(16, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
attempt("kill", lambda: os.kill(pid, signal.SIGWINCH))
attempt("ptrace", ptrace)
attempt("environment", lambda: open(f"/proc/{pid}/environ").read())
attempt("cwd", lambda: os.listdir(f"/proc/{pid}/cwd/"))
attempt("memory", lambda: open(f"/proc/{pid}/mem", "rb"))
attempt("descriptors", lambda: os.listdir(f"/proc/{pid}/fd"))
attempt("log", lambda: open(home + "/stdout").read())
attempt("workspace", lambda: os.listdir(home + "/space/work"))
attempt("bucket", lambda: os.listdir(bucket))
attempt("attempts", lambda: os.listdir(attempts))
attempt("data", lambda: os.listdir(data))
attempt("lock", lambda: open(data + "/keeper/lock"))
attempt("supervisor", lambda: os.kill(supervisor, signal.SIGWINCH))
attempt("moved", lambda: os.rename(attempts + "/.gone", attempts + "/.mine"))
attempt("replaced", lambda: os.rename(data + "/keeper/lock", data + "/keeper/mine"))
"""
ATTACK_COUNT = 15


def harness_with_buckets(base_dir: Path, sandbox: str, ring: KeyRing | None = None) -> EngineHarness:
    users = accounts_in(base_dir)
    buckets = Storage(base_dir / "data/buckets", [], base_dir / "data", owners(users), ring=ring)
    return EngineHarness(base_dir, **kinds(sandbox), storage=buckets, accounts=users, ring=ring)


class Sent(NamedTuple):
    arrived: bool
    """Whether the accomplice got the directories and the output of a job that has ended."""
    found: str
    """What the accomplice printed."""
    victims: set[str]
    """What the jobs printed that started afterwards."""


async def send_descriptors(harness: EngineHarness, shared: bool, count: int = 40, **details: Any) -> Sent:
    """A job sends its open descriptors to an accomplice of another project and exits. Then other jobs start."""
    mounts = _shared_mount(harness) if shared else ()
    meeting = f"turnout-{os.urandom(8).hex()}"
    accomplice = await harness.python(ACCOMPLICE, meeting, "20", project="b", mounts=mounts)
    await harness.wait_for_output(accomplice, "ready")
    sender = await harness.python(SENDER, meeting, project="a", mounts=mounts)
    sent = (await harness.ended(sender)).code == 0
    await harness.engine.forget(sender)
    if sent:
        await harness.wait_for_output(accomplice, "planted")
    victims: set[str] = set()
    for number in range(count):
        end = await harness.run("python", "-c", VICTIM, project="ac"[number % 2], **details)
        victims.add(f"{end.code} {harness.output(end.attempt)}")
        await harness.engine.forget(end.attempt)
    await harness.engine.stop(accomplice, 0)
    await harness.ended(accomplice)
    return Sent(sent, harness.output(accomplice), victims)


async def try_attacks(harness: EngineHarness, shared: bool) -> list[str]:
    """The attacks that succeed against a running job of another project that made all its files public."""
    mounts = (Mount("cos://of-a", "/a", output=True), *(_shared_mount(harness) if shared else ()))
    program = "chmod 777 . $HOME 2>/dev/null; umask 0; echo x > open; echo ready; sleep 1000"
    victim = await harness.start("sh", "-c", program, project="a", mounts=mounts)
    await harness.wait_for_output(victim, "ready")
    pid = (await harness.started(victim)).pid
    home = str(harness.paths.replica(victim, MASTER))
    arguments = (str(pid), home, str(harness.paths.buckets / "of-a"), str(harness.supervisor))
    end = await harness.run("python", "-c", ATTACKS, *arguments, project="b", mounts=mounts[1:])
    lines = harness.output(end.attempt).splitlines()
    assert (end.code, len(lines)) == (0, ATTACK_COUNT), harness.output(end.attempt, stream=1)
    await asyncio.to_thread(os.kill, pid, 0)
    await harness.engine.stop(victim, 0)
    return [line for line in lines if line.endswith("DONE")]


def _shared_mount(harness: EngineHarness) -> tuple[Mount, ...]:
    bind(harness.engine._storage, SHARED, "default", False)
    return (Mount(SHARED, "/shared"),)
