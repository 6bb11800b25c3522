"""The start page of the service in a browser."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.running import Service
from tests.web.browser import CHROMIUM

pytestmark = pytest.mark.slow


def browse(service: Service, tmp_path: Path, *options: str) -> str:
    options = ("--virtual-time-budget=2000", f"--user-data-dir={tmp_path / 'profile'}", *options)
    command = [*CHROMIUM, *options, service.endpoint + "/"]
    env = os.environ | {"HOME": str(tmp_path)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=True).stdout


def test_the_page_shows_a_first_job(service: Service, tmp_path: Path) -> None:
    page = browse(service, tmp_path, "--dump-dom")
    assert "<h1>Turnout" in page
    assert service.endpoint in page
    assert "tictl job create" in page
    assert "{{" not in page


def test_a_screenshot_of_the_page(service: Service, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    browse(service, tmp_path, f"--screenshot={picture}", "--window-size=900,1000")
    assert picture.stat().st_size > 10_000
