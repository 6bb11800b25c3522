"""The soak test for less than a minute; `make soak` runs longer."""

import subprocess
import sys

import pytest

from tests.running import ROOT


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_a_short_soak_finds_nothing_wrong():
    command = [sys.executable, "-m", "soak", "--minutes", "0.8", "--seed", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
