"""System calls that the kernel refuses in a sandbox, and those that have to work."""

import errno
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.local.harness import EngineHarness
from turnout.runner.supervisor.replicas import seccomp

MACHINE = os.uname().machine

pytestmark = pytest.mark.skipif(MACHINE not in ("x86_64", "aarch64"), reason="no list for this processor")

TRY = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
found = {}
for name, number, *arguments in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    answer = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(one) for one in arguments))
    found[name] = ctypes.get_errno() if answer < 0 else 0
print(json.dumps(found))
"""
WORKS = """
import multiprocessing, os, subprocess, threading
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
with multiprocessing.get_context("spawn").Pool(1) as pool: assert pool.map(abs, [-1]) == [1]
assert subprocess.run(["true"]).returncode == 0
os.memfd_create("x"); os.sched_getaffinity(0); os.eventfd(0)
print("works")
"""


OTHER_ARCHITECTURES = """
import ctypes, json, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
# mov eax, edi; int 0x80; ret: the call instruction of 32-bit programs, where 20 is getpid.
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("89f8cd80c3"))
call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
found = {"32 bits": call(20)}
answer = libc.syscall(ctypes.c_long(0x40000000 | 39))
found["x32"] = -ctypes.get_errno() if answer < 0 else answer
print(json.dumps(found))
"""


def calls() -> list[tuple[object, ...]]:
    which = ("x86_64", "aarch64").index(MACHINE)
    found: list[tuple[object, ...]] = [
        (name, numbers[which], -1, -1, -1, -1)
        for name, numbers in seccomp.REFUSED.items()
        if numbers[which] is not None
    ]
    for name, (numbers, bit) in seccomp.FLAGS.items():
        found.append((name, numbers[which], bit | (17 if name == "clone" else 0), 0, 0, 0, 0))
    return [*found, ("ioctl", seccomp.IOCTL[which], 0, 0x5412, 0), ("clone3", seccomp.CLONE3, 0, 0)]


async def test_dangerous_calls_are_refused_and_training_works(confined: EngineHarness):
    wanted = {str(name): 38 if name == "clone3" else 1 for name, *_ in calls()}
    end = await confined.run("python", "-c", TRY, json.dumps(calls()))
    assert json.loads(confined.output(end.attempt)) == wanted
    end = await confined.run("python", "-c", WORKS)
    assert confined.output(end.attempt) == "works\n", confined.output(end.attempt, stream=1)
    end = await confined.run("unshare", "-U", "true")
    assert end.code != 0


@pytest.mark.skipif(MACHINE != "x86_64", reason="other processors have no such calls")
async def test_calls_of_other_architectures_are_refused(confined: EngineHarness):
    end = await confined.run("python", "-c", OTHER_ARCHITECTURES)
    printed = confined.output(end.attempt)
    assert printed, confined.output(end.attempt, stream=1)
    assert json.loads(printed) == {"32 bits": -errno.ENOSYS, "x32": -errno.ENOSYS}


async def test_the_filter_can_be_turned_off(base_dir: Path):
    async with EngineHarness(base_dir, sandbox="bubblewrap", seccomp=False) as harness:
        end = await harness.run("grep", "Seccomp:", "/proc/self/status")
        assert harness.output(end.attempt).split() == ["Seccomp:", "0"]


def test_a_process_can_apply_the_filter_to_itself():
    """As a web shell does."""
    code = (
        "import ctypes, os\nfrom turnout.runner.supervisor.replicas import seccomp\n"
        "ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
        "seccomp.install(ctypes.create_string_buffer(seccomp.program()))\n"
        "os.execvp('grep', ['grep', 'Seccomp:', '/proc/self/status'])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["Seccomp:", "2"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_stays_inside_it(machine: str):
    code = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    assert len(code) < 4096
    assert code[-1][0] == 6
    for number, (what, yes, no, _) in enumerate(code):
        assert number + 1 + max(yes, no) < len(code) or what == 6
    assert seccomp.program("riscv64") == b""
