"""A program in the sandbox tries to reach files and processes outside of it."""

import json
import os
from pathlib import Path

from tests.engines.local.harness import MASTER, EngineHarness
from turnout.job import Mount

ATTACK = """
import ctypes, json, os, signal, sys

def attempt(what):
    try:
        return what() or True
    except Exception as error:
        return type(error).__name__

def read(path):
    with open(path, 'rb') as file:
        return bool(file.read(1))

def uncover():
    if os.fork():
        return {0: True, 1: 'OSError'}[os.waitstatus_to_exitcode(os.wait()[1])]
    libc = ctypes.CDLL(None, use_errno=True)
    os._exit(1 if libc.unshare(0x10020000) or libc.umount2(b'/data', 2) else 0)

def write(path):
    with open(path, 'ab') as file:
        file.write(b'x')

root_key, database, journal, other, victim = sys.argv[1:]
found = {
    'uid': os.getuid(),
    'root key': attempt(lambda: read(root_key)),
    'database': attempt(lambda: read(database)),
    'journal': attempt(lambda: read(journal)),
    'other job': attempt(lambda: read(other)),
    'data directory': attempt(lambda: os.listdir(os.path.dirname(root_key))),
    'shadow': attempt(lambda: read('/etc/shadow')),
    'home of root': attempt(lambda: os.listdir('/root')),
    'write usr': attempt(lambda: write('/usr/turnout')),
    'write etc': attempt(lambda: write('/etc/turnout')),
    'write status': attempt(lambda: write('/run/out/x')),
    'kill supervisor': attempt(lambda: os.kill(int(victim), signal.SIGKILL)),
    'kill all': attempt(lambda: os.kill(-1, 0)),
    'setuid': attempt(lambda: os.setuid(0)),
    'mount': os.system('mount -t tmpfs none /mnt 2>/dev/null') == 0,
    'processes': [pid for pid in os.listdir('/proc') if pid.isdigit()],
    'capabilities': [line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')],
    'outside': [attempt(lambda: os.listdir(path)) for path in
                ('/oldroot', '/newroot', '/proc/1/root/oldroot', '/proc/1/root/../newroot', '/data/../oldroot')],
    'mounts': [line.split()[3:5] for line in open('/proc/self/mountinfo')],
    'below a mount': attempt(uncover),
    'descriptors': sorted(os.listdir('/proc/self/fd')),
    'environment': sorted(os.environ),
}
print(json.dumps(found))
"""


async def test_attacks_from_inside_the_sandbox_fail(sandboxed: EngineHarness, base_dir: Path):
    harness = sandboxed
    for path in (harness.paths.root_key, harness.paths.database):
        path.write_text("secret")
        path.chmod(0o644)
    other = await harness.run("sh", "-c", "echo secret > work.txt; echo secret")
    theirs = harness.paths.replica(other.attempt, MASTER) / "stdout"
    secrets = (harness.paths.root_key, harness.paths.database, harness.paths.supervisor / "journal", theirs)
    (base_dir / "own").mkdir()
    mounts = (Mount(f"file://{base_dir}/own", "/data"),)
    attempt = await harness.python(ATTACK, *map(str, secrets), str(harness.supervisor), mounts=mounts)
    end = await harness.ended(attempt)
    assert end.code == 0, harness.output(attempt, stream=1)
    found = json.loads(harness.output(attempt))
    assert found["uid"] != 0
    for secret in (
        "root key",
        "database",
        "journal",
        "other job",
        "data directory",
        "home of root",
        "shadow",
    ):
        assert found[secret] == "FileNotFoundError", secret
    assert found["write usr"] == found["write etc"] == found["write status"] == "OSError"
    assert found["kill supervisor"] == "ProcessLookupError"
    assert found["kill all"] in {True, "ProcessLookupError", "PermissionError"}
    assert found["setuid"] in {"PermissionError", "OSError"}
    assert not found["mount"]
    assert len(found["processes"]) <= 3
    assert found["capabilities"] == ["0" * 16]
    assert set(found["outside"]) == {"FileNotFoundError"}
    assert found["below a mount"] == "OSError"
    home = harness.paths.replica(attempt, MASTER)
    own = {f"{home}/space/{name}" for name in ("box/out", "box/hosts", "work", "tmp")}
    shown = {source for source, _ in found["mounts"] if source.startswith(str(harness.paths.data))}
    assert shown == own | {source for source in shown if source.startswith(f"{harness.paths.runtimes}/")}
    assert found["descriptors"] == ["0", "1", "2", "3"]
    assert not [name for name in found["environment"] if name.startswith("TURNOUT_") and "KEY" in name]


async def test_writes_outside_the_workspace_do_not_stay(sandboxed: EngineHarness):
    end = await sandboxed.run(
        "sh", "-c", "echo x > /var/x && echo x > /home/x && echo x > /tmp/x && ls /tmp /var"
    )
    assert end.code == 0, sandboxed.output(end.attempt, stream=1)
    assert not Path("/var/x").exists()
    assert not Path("/home/x").exists()
    again = await sandboxed.run("ls", "/tmp")
    assert sandboxed.output(again.attempt) == ""


async def test_bubblewrap_itself_ignores_the_users_ld_preload(sandboxed: EngineHarness, base_dir: Path):
    (base_dir / "evil").mkdir()
    end = await sandboxed.run(
        "sh",
        "-c",
        "echo $LD_PRELOAD",
        env={"LD_PRELOAD": "/data/evil.so"},
        mounts=(Mount(f"file://{base_dir}/evil", "/data"),),
    )
    assert sandboxed.output(end.attempt) == "/data/evil.so\n"
    # The loader complains once for each program that it loads in the sandbox: only for the shell.
    assert sandboxed.output(end.attempt, stream=1).count("cannot be preloaded") == 1


async def test_names_of_users_and_hosts_are_resolved(sandboxed: EngineHarness):
    end = await sandboxed.run(
        "sh", "-c", "id -un; getent hosts localhost; test -w /dev/shm && test -c /dev/urandom"
    )
    assert end.code == 0
    name = "job-1" if os.geteuid() == 0 else None
    assert name is None or sandboxed.output(end.attempt).startswith(name)
