"""Changes the clock of the service and its supervisor, with libfaketime."""

import os
import subprocess
import sys
from pathlib import Path

from tests.running import python_path

_PATCH = """
# If libfaketime changes only the wall clock, it breaks clock_nanosleep and with it time.sleep. And the supervisor gets
# another environment, without the variables of libfaketime.
import os, select, time

def sleep(seconds):
    select.select([], [], [], seconds)

time.sleep = sleep
spawn = os.posix_spawn
fake = {name: os.environ[name] for name in os.environ if name == "LD_PRELOAD" or name.startswith("FAKETIME_")}

def spawn_faked(path, argv, env, **more):
    return spawn(path, argv, {**env, **fake}, **more)

os.posix_spawn = spawn_faked
"""


class Clock:
    def __init__(self, directory: Path) -> None:
        """`directory`: one that every user can reach."""
        self._file = directory / "clock"
        self.env: dict[str, str] = {}
        """The environment for a service with this clock; empty if libfaketime does not work here."""
        library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
        if library is None:
            return
        patch = directory / "patch"
        patch.mkdir(mode=0o755)
        (patch / "sitecustomize.py").write_text(_PATCH)
        env = {
            "PYTHONPATH": f"{patch}{os.pathsep}{python_path()}",
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.step(-40)
        command = [sys.executable, "-c", "import time; time.sleep(0.01); print(time.time())"]
        try:
            said = subprocess.run(command, env=os.environ | env, capture_output=True, timeout=20, check=True)
            real = subprocess.run(command, capture_output=True, timeout=20, check=True)
        except subprocess.SubprocessError:
            return
        if float(said.stdout) < float(real.stdout) - 20:
            self.env = env
        self.step(0)

    def step(self, seconds: int) -> None:
        """Sets the difference to the real time."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}")
        fresh.chmod(0o644)
        fresh.rename(self._file)
