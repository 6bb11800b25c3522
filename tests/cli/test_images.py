"""`turnout image` against a real service."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images.oci import Layer, Layout
from tests.images.registry import Registry
from tests.images.registry import running as running_registry
from tests.running import KEY, Service, running

LAYERS = Layer().file("bin/tool", "x", 0o755).entry("dev", b"5", 0o755).tar, Layer().file("app/train.py").tar


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running_registry(tmp_path_factory.mktemp("hub") / "registry") as started:
        yield started


@pytest.fixture(scope="module")
def service(registry: Registry) -> Iterator[Service]:
    with running(f'[registries.hub]\nhost = "{registry.host}"\nhttp = true\n') as started:
        yield started.start()


@pytest.fixture(autouse=True)
def as_root(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")


def test_an_image_is_imported_listed_and_removed(run_turnout, tmp_path: Path, monkeypatch):
    Layout(tmp_path / "build").image(*LAYERS, tag="1")
    monkeypatch.chdir(tmp_path)
    imported = run_turnout("image", "import", "oci:build:1", "team/trainer:1")
    assert imported.out.startswith("team/trainer:1 is in the cache: sha256:"), imported
    [one] = json.loads(run_turnout("image", "ls", "--output=json").out)
    assert (one["name"], one["layers"], one["source"]) == (
        "docker.io/team/trainer:1",
        2,
        f"oci:{tmp_path}/build:1",
    )
    [row] = run_turnout("image", "ls", "--no-header").out.splitlines()
    assert row.split()[:2] == ["team/trainer:1", one["digest"][7:19]]
    assert run_turnout("image", "rm", "team/trainer:1").out.startswith("Removed team/trainer:1 (")
    assert json.loads(run_turnout("image", "ls", "--output=json").out) == []
    again = run_turnout("image", "rm", "team/trainer:1")
    assert (again.code, again.out) == (1, "")
    assert "docker.io/team/trainer:1 is not in the cache: `turnout image ls` shows what is" in again.err


def test_an_image_is_pulled(run_turnout, registry: Registry, tmp_path: Path):
    name = registry.push(Layout(tmp_path / "build").image(*LAYERS).source(), "team/pulled:1")
    pulled = run_turnout("image", "pull", name, "--output=json")
    assert json.loads(pulled.out)["stage"] == "done"
    [one] = json.loads(run_turnout("image", "ls", "--output=json").out)
    assert (one["name"], one["source"], one["jobs"]) == (name, "", 0)
    assert run_turnout("image", "rm", name).code == 0


def test_what_cannot_be_brought_is_explained(run_turnout, registry: Registry, tmp_path: Path):
    missing = run_turnout("image", "pull", f"{registry.host}/team/missing:1")
    assert (missing.code, missing.out) == (1, "")
    assert f"the image {registry.host}/team/missing:1 " in missing.err
    internal = run_turnout("image", "pull", "127.0.0.1:9/metadata")
    assert 'an operator can allow it by [registries.X] host = "127.0.0.1:9"' in internal.err
    local = run_turnout("image", "pull", "oci:/etc:1")
    assert "`turnout image import oci:… NAME`" in local.err
    wrong = run_turnout("image", "import", "registry/name:1", "name")
    assert "source must begin with one of docker-archive:" in wrong.err
    nothing = run_turnout("image", "import", f"oci:{tmp_path}/nothing:1", "name")
    assert nothing.code == 1
    assert f"the image oci:{tmp_path}/nothing:1 " in nothing.err


def test_a_key_of_a_project_pulls_but_does_not_import_and_remove(
    run_turnout, registry, tmp_path, monkeypatch
):
    key = run_turnout("keys", "create", "--project=vision").out.partition("TURNOUT_KEY=")[2].strip()
    monkeypatch.setenv("TURNOUT_KEY", key)
    name = registry.push(Layout(tmp_path / "build").image(*LAYERS).source(), "team/shared:1")
    assert run_turnout("image", "pull", name).code == 0
    assert name in run_turnout("image", "ls").out
    assert "only the root key may remove images" in run_turnout("image", "rm", name).err
    assert "only the root key may import images" in run_turnout("image", "import", "oci:/etc:1", "name").err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes as other users")
def test_layers_belong_to_a_user_of_their_own(service: Service):
    layers = service.data / "images" / "layers"
    assert layers.stat().st_uid != 0
    assert {path.stat().st_uid for path in layers.iterdir()} <= {layers.stat().st_uid}
