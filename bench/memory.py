"""The peak memory of the service and its own processes, measured by a separate process.

`python -m bench.memory PID` looks every 20 ms until its input ends, then prints the peaks in bytes.

The service's own peak is the kernel's, reset at the beginning, so nothing between two looks is missed. Of the others
(supervisor, stager, search processes, gRPC) the largest sum seen counts. Jobs are children of the supervisor, not of
the service: they do not count.
"""

import contextlib
import select
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import msgspec

_LOOK_SECONDS = 0.02
_SEARCH = b"turnout.search"


class Peaks(msgspec.Struct):
    service: int = 0
    others: int = 0
    """The supervisor, the stager and gRPC together."""
    searches: int = 0
    """All search processes together."""


class Watch:
    def __init__(self) -> None:
        self.peaks = Peaks()


@contextlib.contextmanager
def watching(pid: int) -> Generator[Watch]:
    """The peaks are known after the block."""
    watch = Watch()
    command = [sys.executable, "-m", "bench.memory", str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as looker:
        assert looker.stdout
        looker.stdout.readline()  # it has begun
        try:
            yield watch
        finally:
            said = looker.communicate()[0]
    watch.peaks = msgspec.json.decode(said, type=Peaks)


def _look_until_told(pid: int) -> Peaks:
    peaks = Peaks()
    service = Path(f"/proc/{pid}")
    (service / "clear_refs").write_text("5")
    command = (service / "cmdline").read_bytes()
    print(flush=True)
    while not select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
        others = searches = 0
        for child in _children(service):
            with contextlib.suppress(OSError):
                called = (child / "cmdline").read_bytes()
                if called == command:
                    continue  # on its way to become another program: what it has is the service's
                taken = _from_status(child, "VmRSS")
                if _SEARCH in called:
                    searches += taken
                else:
                    others += taken
        peaks.others, peaks.searches = max(peaks.others, others), max(peaks.searches, searches)
    peaks.service = _from_status(service, "VmHWM")
    return peaks


def _children(process: Path) -> list[Path]:
    found: list[Path] = []
    for task in (process / "task").iterdir():
        with contextlib.suppress(OSError):
            found += [Path("/proc") / pid for pid in (task / "children").read_text().split()]
    return found


def _from_status(process: Path, name: str) -> int:
    """0 if the process is about to end."""
    for line in (process / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


if __name__ == "__main__":
    print(msgspec.json.encode(_look_until_told(int(sys.argv[1]))).decode(), flush=True)
