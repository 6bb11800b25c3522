"""A program in the sandbox tries to get at what is not its own."""

import json
import os
from pathlib import Path

from tests.engines.local.yard import MASTER, Yard
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
    'kill keeper': attempt(lambda: os.kill(int(victim), signal.SIGKILL)),
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


async def test_the_attack(boxed_yard: Yard, place: Path):
    yard = boxed_yard
    for path in (yard.paths.root_key, yard.paths.database):
        path.write_text("secret")
        path.chmod(0o644)
    other = await yard.run("sh", "-c", "echo secret > work.txt; echo secret")
    theirs = yard.paths.replica(other.attempt, MASTER) / "stdout"
    secrets = (yard.paths.root_key, yard.paths.database, yard.paths.keeper / "journal", theirs)
    (place / "own").mkdir()
    mounts = (Mount(f"file://{place}/own", "/data"),)
    attempt = await yard.python(ATTACK, *map(str, secrets), str(yard.keeper), mounts=mounts)
    end = await yard.ended(attempt)
    assert end.code == 0, yard.out(attempt, stream=1)
    found = json.loads(yard.out(attempt))
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
    assert found["kill keeper"] == "ProcessLookupError"
    assert found["kill all"] in {True, "ProcessLookupError", "PermissionError"}
    assert found["setuid"] in {"PermissionError", "OSError"}
    assert not found["mount"]
    assert len(found["processes"]) <= 3
    assert found["capabilities"] == ["0" * 16]
    assert set(found["outside"]) == {"FileNotFoundError"}
    assert found["below a mount"] == "OSError"
    home = yard.paths.replica(attempt, MASTER)
    own = {f"{home}/box/out", f"{home}/box/hosts", f"{home}/work", f"{home}/tmp"}
    shown = {source for source, _ in found["mounts"] if source.startswith(str(yard.paths.data))}
    assert shown == own | {source for source in shown if source.startswith(f"{yard.paths.runtimes}/")}
    assert found["descriptors"] == ["0", "1", "2", "3"]
    assert not [name for name in found["environment"] if name.startswith("TURNOUT_") and "KEY" in name]


async def test_what_it_writes_elsewhere_is_gone(boxed_yard: Yard):
    end = await boxed_yard.run(
        "sh", "-c", "echo x > /var/x && echo x > /home/x && echo x > /tmp/x && ls /tmp /var"
    )
    assert end.code == 0, boxed_yard.out(end.attempt, stream=1)
    assert not Path("/var/x").exists()
    assert not Path("/home/x").exists()
    again = await boxed_yard.run("ls", "/tmp")
    assert boxed_yard.out(again.attempt) == ""


async def test_bubblewrap_itself_does_not_load_what_the_user_names(boxed_yard: Yard, place: Path):
    (place / "evil").mkdir()
    end = await boxed_yard.run(
        "sh",
        "-c",
        "echo $LD_PRELOAD",
        env={"LD_PRELOAD": "/data/evil.so"},
        mounts=(Mount(f"file://{place}/evil", "/data"),),
    )
    assert boxed_yard.out(end.attempt) == "/data/evil.so\n"
    # The loader complains once for each program that it loads in there: the shell alone.
    assert boxed_yard.out(end.attempt, stream=1).count("cannot be preloaded") == 1


async def test_names_of_users_and_hosts_are_known(boxed_yard: Yard):
    end = await boxed_yard.run(
        "sh", "-c", "id -un; getent hosts localhost; test -w /dev/shm && test -c /dev/urandom"
    )
    assert end.code == 0
    name = "turnout-job" if os.geteuid() == 0 else None
    assert name is None or boxed_yard.out(end.attempt).startswith(name)
