"""What a person sees who opens the service in a browser."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.running import Service

pytestmark = pytest.mark.slow

CHROMIUM = [
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=2000",
]


def browse(service: Service, tmp_path: Path, *options: str) -> str:
    command = [*CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", *options, service.endpoint + "/"]
    env = os.environ | {"HOME": str(tmp_path)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=True).stdout


def test_the_page_says_what_it_is_and_how_to_begin(service: Service, tmp_path: Path) -> None:
    page = browse(service, tmp_path, "--dump-dom")
    assert "<h1>Turnout" in page
    assert service.endpoint in page
    assert "tictl job create" in page
    assert "{{" not in page


def test_it_can_be_looked_at(service: Service, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    browse(service, tmp_path, f"--screenshot={picture}", "--window-size=900,1000")
    assert picture.stat().st_size > 10_000
