"""Tencent's asynchronous client, which only the whole SDK has: it lives in the environment of the slow tests."""

import subprocess
from pathlib import Path

import pytest

from tests.running import KEY, ROOT, Service


@pytest.mark.slow
def test_every_way_to_sign_and_send(service: Service):
    program = Path(__file__).with_name("asynchronous.py")
    command = [ROOT / ".venv-slow/bin/python", program, f"127.0.0.1:{service.port}", KEY.id, KEY.secret]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 8
