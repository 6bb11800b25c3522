"""The copy of the runner that stays on a node of Ray."""

import hashlib
import io
import os
import time
import zipfile
from pathlib import Path

import pytest

from turnout.engines.ray.ray_bridge import replica

DAY = 86400


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(replica.tempfile, "tempdir", str(tmp_path))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", "print('I run')\n")
        file.writestr("runner/__init__.py", "")
    return archive.getvalue()


@pytest.fixture
def fetched(data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    urls: list[str] = []

    def download(url: str, patience: float) -> bytes:
        urls.append(url)
        return data

    monkeypatch.setattr(replica, "download", download)
    return urls


def fetch(data: bytes) -> Path:
    return Path(replica.fetch("http://service/runner.pyz", hashlib.sha256(data).hexdigest(), 1))


def test_it_is_fetched_once(data: bytes, fetched: list[str]):
    path = fetch(data)
    assert fetch(data) == path
    assert len(fetched) == 1
    assert (path / "__main__.py").exists()
    assert len(list(path.parent.iterdir())) == 1


def test_one_that_has_lost_a_file_is_replaced_once(data: bytes, fetched: list[str]):
    path = fetch(data)
    (path / "__main__.py").unlink()
    for _ in range(3):
        assert fetch(data) == path
    assert len(fetched) == 2
    assert (path / "__main__.py").exists()


def test_those_that_nobody_used_for_long_are_removed(data: bytes, fetched: list[str]):
    cache = fetch(data).parent
    for name, days in (("runner-old", 61), ("runner-newer", 59)):
        (cache / name).mkdir()
        then = time.time() - days * DAY
        os.utime(cache / name, (then, then))
    (cache / "runner-newer/file").touch()
    path = fetch(data)
    os.utime(path, (0, 0))
    fetch(data)
    assert path.stat().st_mtime > time.time() - DAY, "it is used"
    (path / "__main__.py").unlink()
    fetch(data)
    assert not (cache / "runner-old").exists()
    assert (cache / "runner-newer").exists()
