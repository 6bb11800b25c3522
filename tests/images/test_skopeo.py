"""What the real skopeo says when something is wrong, as an error that says what to do."""

import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Certificate, make_certificate
from tests.images import registry
from tests.images.conftest import OpenCache
from tests.images.oci import Layer, Layout
from tests.images.registry import Registry
from turnout.errors import Denied, Misconfigured, NotFound, TurnoutError, Unavailable
from turnout.images import Archive, parse
from turnout.images.skopeo import Skopeo, Unreachable
from turnout.images.space import DiskFull
from turnout.registries import Registry as Settings

LAYER = Layer().file("noise", os.urandom(3 << 20)).tar


class Refusing(http.server.BaseHTTPRequestHandler):
    """A registry that answers each request with an error."""

    status = 200
    code = ""

    def do_GET(self) -> None:
        body = json.dumps({"errors": [{"code": self.code, "message": "no"}]}).encode()
        first = self.path == "/v2/"
        self.send_response(200 if first else self.status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "kind", "text"),
    [
        (401, "UNAUTHORIZED", Denied, r"no credentials .* may be used"),
        (403, "DENIED", Denied, r"no credentials .* may be used"),
        (404, "MANIFEST_UNKNOWN", NotFound, "does not exist"),
        (404, "NAME_UNKNOWN", NotFound, "does not exist"),
        (429, "TOOMANYREQUESTS", Unreachable, "cannot be pulled now"),
        (500, "UNKNOWN", Unreachable, "cannot be pulled now"),
        (503, "UNAVAILABLE", Unreachable, "cannot be pulled now"),
    ],
)
async def test_a_registry_that_refuses(
    open_cache: OpenCache, refusing: str, monkeypatch, status: int, code: str, kind: type[TurnoutError], text: str
):  # fmt: skip
    monkeypatch.setattr(Refusing, "status", status)
    monkeypatch.setattr(Refusing, "code", code)
    async with open_cache({"hub": Settings(host=refusing, http=True)}) as cache:
        with pytest.raises(TurnoutError, match=text) as refused:
            await cache.get(parse(f"{refusing}/team/trainer:1"), "vision")
    assert type(refused.value) is kind, refused.value


async def test_nobody_listens(open_cache: OpenCache):
    host = f"127.0.0.1:{registry.free_port()}"
    async with open_cache({"hub": Settings(host=host, http=True)}) as cache:
        with pytest.raises(Unreachable, match="connection refused"):
            await cache.get(parse(f"{host}/team/trainer:1"), "vision")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def secure_hub(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[Registry]:
    directory = tmp_path_factory.mktemp("secure") / "registry"
    with registry.running(directory, password=True, certificate=certificate) as started:
        yield started


async def test_a_registry_with_a_certificate_of_its_own(
    open_cache: OpenCache, secure_hub: Registry, certificate: Certificate, tmp_path: Path
):
    layout = Layout(tmp_path / "image").image(Layer().file("app", "x").tar)
    name = parse(secure_hub.push(layout.source(), "team/secure:1"))

    def settings(ca: str) -> dict[str, Settings]:
        return {"hub": Settings(secure_hub.host, registry.USER, registry.PASSWORD, ca=ca)}

    async with open_cache(settings("")) as cache:
        with pytest.raises(Unavailable, match="certificate signed by unknown authority"):
            await cache.get(name, "vision")
    async with open_cache(settings(str(tmp_path / "missing"))) as cache:
        with pytest.raises(Misconfigured, match=r"ca = .* cannot be read"):
            await cache.get(name, "vision")
    async with open_cache(settings(str(certificate.authority))) as cache:
        image = await cache.get(name, "vision")
        assert (image.layers[0] / "app").read_text() == "x"


async def test_a_registry_without_tls_needs_a_word_in_the_settings(
    open_cache: OpenCache, hub: Registry, tmp_path: Path
):
    name = hub.push(Layout(tmp_path / "image").image(Layer().file("app", "x").tar).source(), "team/plain:1")
    async with open_cache({"hub": Settings(host=hub.host)}) as cache:
        with pytest.raises(Unavailable, match="server gave HTTP response to HTTPS client"):
            await cache.get(parse(name), "vision")


def skopeo(source: str, directory: Path) -> Skopeo:
    return Skopeo(source, "team/trainer:1", None, directory, None, {})


async def test_the_disk_becomes_full(tmp_path: Path):
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    layout = Layout(tmp_path / "image").image(LAYER)
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", small], check=True)
    try:
        with pytest.raises(DiskFull, match="the disk is full: the image team/trainer:1 could not be stored"):
            await skopeo(layout.source(), small).copy("", {}, sizes(layout))
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


async def test_a_layer_is_larger_than_the_manifest_says(tmp_path: Path):
    layout = Layout(tmp_path / "image").image(LAYER)
    (tmp_path / "download").mkdir()
    wanted = dict.fromkeys(sizes(layout), 10)
    with pytest.raises(Unreachable, match="more than the image's manifest announces"):
        await skopeo(layout.source(), tmp_path / "download").copy("", {}, wanted)


def sizes(layout: Layout) -> dict[str, int]:
    """Of the blobs of the image's layers."""
    name = layout.digests["layer"].removeprefix("sha256:")
    return {name: (layout.blobs / name).stat().st_size}


@pytest.mark.parametrize("transport", ["docker-archive", "oci-archive"])
async def test_an_archive_is_imported(open_cache: OpenCache, tmp_path: Path, transport: str):
    content = Layer().file("app", transport).tar
    layout = Layout(tmp_path / "image").image(content, Env=["A=1"], Cmd=["/app"])
    target = f"{transport}:{tmp_path}/archive.tar:team/packed:1"
    copy = ["skopeo", "--insecure-policy", "copy", "--quiet", layout.source(), target]
    subprocess.run(copy, check=True, capture_output=True)
    async with open_cache() as cache:
        cache.holders_known()
        name = parse("team/packed:1")
        image = await cache.add(
            Archive(target if transport == "oci-archive" else target.rpartition(":team")[0]), name
        )
        assert (image.layers[0] / "app").read_text() == transport
        assert (image.config.env, image.config.cmd) == (("A=1",), ("/app",))
        assert cache.lookup(name, "anyone") == image
        with pytest.raises(NotFound, match=r"missing.tar.* does not exist|no such file"):
            await cache.add(Archive(f"{transport}:{tmp_path}/missing.tar"), parse("team/missing:1"))
