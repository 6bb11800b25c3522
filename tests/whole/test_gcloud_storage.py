"""`gcloud storage` itself, where it is installed. tests/gateways/gcs/test_gcloud*.py replay what it sends."""

import filecmp
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dialects.vertex.driving import PROJECT, Cloud
from tests.running import running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed"),
    pytest.mark.timeout(600),
]

Gcloud = Callable[..., str]


@pytest.fixture
def gcloud(tmp_path: Path) -> Iterator[Gcloud]:
    """Runs `gcloud storage` in a directory of its own, with a token of the root key."""
    with running() as service:
        cloud = Cloud(service.start())
        home = tmp_path / "home"
        home.mkdir()
        (home / "token").write_text(cloud.token())
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "NO_PROXY": "127.0.0.1",
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{cloud.service.endpoint}/storage/v1/",
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(home / "token"),
        }

        def run(*words: str) -> str:
            command = ["gcloud", "storage", *words]
            done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


def test_files_there_and_back(gcloud: Gcloud, tmp_path: Path):
    (tmp_path / "small").write_text("hello\n")
    (tmp_path / "large").write_bytes(os.urandom(20_000_000))
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/a").write_text("1")
    (tmp_path / "tree/sub/b").write_text("2")

    gcloud("buckets", "create", "gs://from-gcloud")
    gcloud("cp", "small", "large", "gs://from-gcloud/")
    gcloud("cp", "-r", "tree", "gs://from-gcloud/")
    assert gcloud("ls", "gs://from-gcloud/**").split() == [
        "gs://from-gcloud/large",
        "gs://from-gcloud/small",
        "gs://from-gcloud/tree/a",
        "gs://from-gcloud/tree/sub/b",
    ]
    assert gcloud("cat", "gs://from-gcloud/small") == "hello\n"

    gcloud("mv", "gs://from-gcloud/large", "gs://from-gcloud/moved")
    gcloud("cp", "gs://from-gcloud/moved", "back")
    assert filecmp.cmp(tmp_path / "large", tmp_path / "back", shallow=False)
    gcloud("rsync", "-r", "gs://from-gcloud/tree", "tree-back")
    assert (tmp_path / "tree-back/sub/b").read_text() == "2"

    gcloud("rm", "gs://from-gcloud/small")
    assert "gs://from-gcloud/small" not in gcloud("ls", "gs://from-gcloud")
    gcloud("rm", "-r", "gs://from-gcloud")
