"""Images from a registry: Debian's docker-registry on loopback."""

import asyncio
import random
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.images.conftest import OpenCache
from tests.images.cutting import cutting
from tests.images.oci import Layer, Layout, digest
from tests.images.registry import Registry
from turnout.errors import Denied, Invalid, NotFound, TurnoutError, Unavailable
from turnout.images import Image, ImageCache, Progress, parse
from turnout.limits import Limits
from turnout.registries import Registry as Settings

BASE = (
    Layer().directory("bin").file("bin/tool", "#!/bin/sh\n", 0o755).file("etc/os-release", "NAME=test\n").tar
)
CODE = Layer().directory("app").file("app/train.py", "print('hello')\n").tar


@pytest.fixture
async def cache(open_cache: OpenCache, hub: Registry) -> AsyncIterator[ImageCache]:
    async with open_cache({"hub": Settings(host=hub.host, http=True)}) as opened:
        yield opened


def push(hub: Registry, directory: Path, name: str, *layers: bytes, **config: Any) -> str:
    layout = Layout(directory / name.replace("/", "-").replace(":", "-")).image(*layers, **config)
    return hub.push(layout.source(), name)


def content(image: Image, name: str) -> str:
    """Of the file in the highest layer that has it."""
    return next(path / name for path in image.layers if (path / name).exists()).read_text()


async def test_an_image_is_pulled_once(cache: ImageCache, hub: Registry, tmp_path: Path):
    name = parse(
        push(hub, tmp_path, "team/trainer:1", BASE, CODE, Entrypoint=["python3"], Env=["A=1"], User="7")
    )
    assert cache.lookup(name, "vision") is None
    seen: list[Progress] = []
    image = await cache.get(name, "vision", seen.append)
    assert content(image, "app/train.py") == "print('hello')\n"
    assert content(image, "etc/os-release") == "NAME=test\n"
    assert (image.config.entrypoint, image.config.env, image.config.user) == (("python3",), ("A=1",), "7")
    assert [*dict.fromkeys(one.stage for one in seen)] == ["resolving", "downloading", "unpacking", "done"]
    assert cache.lookup(name, "language") == image
    assert cache.lookup(name.at(image.digest), "vision") is None
    assert (await cache.get(name.at(image.digest), "vision")).layers == image.layers


async def test_equal_pulls_are_joined(cache: ImageCache, hub: Registry, tmp_path: Path):
    name = parse(push(hub, tmp_path, "team/joined:1", BASE))
    seen: list[list[Progress]] = [[], []]
    first, second = await asyncio.gather(*(cache.get(name, "vision", one.append) for one in seen))
    assert first == second
    assert [one[-1].stage for one in seen] == ["done", "done"]
    assert seen[0][1:] == seen[1][1:]


async def test_two_images_share_a_layer(cache: ImageCache, hub: Registry, tmp_path: Path):
    first = await cache.get(parse(push(hub, tmp_path, "team/first:1", BASE)), "vision")
    seen: list[Progress] = []
    second = await cache.get(parse(push(hub, tmp_path, "team/second:1", BASE, CODE)), "vision", seen.append)
    assert second.layers[1:] == first.layers
    loading = [one for one in seen if one.stage == "downloading"]
    assert {one.layers for one in loading} == {2}
    assert loading[-1].layer == 2
    assert loading[-1].total < 1000, "only the layer that is missing"


async def test_a_pull_goes_on_after_a_break_with_the_layers_that_are_missing(
    open_cache: OpenCache, hub: Registry, tmp_path: Path
):
    large = [Layer().file(f"large-{number}", random.randbytes(300_000)).tar for number in range(4)]
    name = push(hub, tmp_path, "team/broken:1", *large)
    with cutting(hub.host) as proxy:
        reference = parse(name.replace(hub.host, proxy.host))
        proxy.budget = 500_000
        async with open_cache({"hub": Settings(host=proxy.host, http=True)}) as cache:
            seen: list[Progress] = []
            broken = asyncio.ensure_future(cache.get(reference, "vision", seen.append))
            await asyncio.to_thread(proxy.cut.wait, 60)
            assert cache.lookup(reference, "vision") is None
            before, proxy.budget = proxy.sent, 1 << 30
            image = await broken
            assert len(image.layers) == 4
            assert [(image.layers[3 - at] / f"large-{at}").stat().st_size for at in range(4)] == [300_000] * 4
        # Were all four fetched again, this would be 1 200 000 and more.
        assert proxy.sent - before < 1_200_000


async def test_a_registry_that_does_not_answer(open_cache: OpenCache, hub: Registry, tmp_path: Path):
    name = push(hub, tmp_path, "team/away:latest", BASE)
    with cutting(hub.host) as proxy:
        reference = parse(name.replace(hub.host, proxy.host))
        clock = [0.0]
        async with open_cache({"hub": Settings(host=proxy.host, http=True)}, clock=lambda: clock[0]) as cache:
            image = await cache.get(reference, "vision")
            proxy.budget = 0
            assert cache.lookup(reference, "vision") == image
            clock[0] = 60
            assert cache.lookup(reference, "vision") is None, "`latest` may be another image now"
            seen: list[Progress] = []
            assert await cache.get(reference, "vision", seen.append) == image
            assert seen[-1].message.endswith("the image of the last pull is used")
            with pytest.raises(Unavailable, match="cannot be pulled now"):
                await cache.pull(reference, "vision")
            with pytest.raises(Unavailable, match="cannot be pulled now"):
                await cache.get(reference._replace(repository="team/other"), "vision")


async def test_what_a_tag_means_now(cache: ImageCache, hub: Registry, tmp_path: Path):
    name = parse(push(hub, tmp_path / "old", "team/moves:1", BASE))
    old = await cache.get(name, "vision")
    push(hub, tmp_path / "new", "team/moves:1", BASE, CODE)
    assert await cache.get(name, "vision") == old
    new = await cache.pull(name, "vision")
    assert cache.lookup(name, "vision") == new != old


async def test_an_image_that_is_not_there(cache: ImageCache, hub: Registry, tmp_path: Path):
    with pytest.raises(NotFound, match=f"the image {hub.host}/team/nothing:1 does not exist"):
        await cache.get(parse(f"{hub.host}/team/nothing:1"), "vision")
    with pytest.raises(Denied, match=r"\[registries.X\] host"):
        await cache.get(parse("127.0.0.1:1/team/nothing:1"), "vision")


async def test_a_name_that_leads_to_this_machine(open_cache: OpenCache):
    """The name of the machine itself is one, on most machines; anybody's DNS server can have others."""
    name = socket.gethostname().lower()
    try:
        found = socket.gethostbyname(name)
    except OSError:
        found = ""
    if not found.startswith("127."):
        pytest.skip("this machine's name does not lead to its loopback")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        host = f"{name}:{listening.getsockname()[1]}"
        async with open_cache() as cache:
            with pytest.raises(Denied, match=f'registries.X. host = "{host}"'):
                await cache.get(parse(f"{host}/team/nothing:1"), "vision")
            with pytest.raises(TimeoutError):
                listening.accept()


@pytest.mark.parametrize("kind", ["layer", "content", "config", "manifest"])
async def test_a_wrong_digest_is_noticed(cache: ImageCache, hub: Registry, tmp_path: Path, kind: str):
    """The registry has other bytes than it says; or the image's config says another digest of the content."""
    layout = Layout(tmp_path / "image")
    layer = Layer().file("wrong", kind).tar
    if kind == "content":
        layout.image(layer, diff_ids=[digest(b"something else")])
    else:
        layout.image(layer)
    reference = parse(hub.push(layout.source(), f"team/wrong-{kind}:1"))
    if kind != "content":
        blob = hub.blob(layout.digests[kind])
        blob.write_bytes(blob.read_bytes()[:-1] + b" ")
    with pytest.raises(TurnoutError, match=r"[Dd]igest|does not exist|cannot be pulled"):
        await cache.get(reference, "vision")
    assert cache.lookup(reference, "vision") is None
    assert cache.cached("vision", root=True) == []
    layers = cache._layers._directory
    assert [path.name for path in layers.iterdir()] == []


async def test_hostile_layers_leave_nothing(cache: ImageCache, hub: Registry, tmp_path: Path, data: Path):
    name = push(hub, tmp_path, "team/hostile:1", BASE, Layer().file("../../../escaped", "x").tar)
    with pytest.raises(Invalid, match="leads out of it"):
        await cache.get(parse(name), "vision")
    assert not list(data.rglob("escaped"))
    assert not list((data / "images" / "downloads").iterdir())


async def test_a_bomb_is_refused(open_cache: OpenCache, hub: Registry, tmp_path: Path, data: Path):
    bomb = Layer().file("zeros", bytes(64 << 20)).tar
    name = parse(push(hub, tmp_path, "team/bomb:1", bomb))
    limits = Limits(image_bytes=8 << 20)
    async with open_cache({"hub": Settings(host=hub.host, http=True)}, limits) as cache:
        with pytest.raises(Invalid, match=r"more than 8388608 bytes .*\[limits\] image_bytes"):
            await cache.get(name, "vision")
    assert not list((data / "images" / "layers").iterdir())


async def test_a_pull_that_nobody_waits_for_ends(cache: ImageCache, hub: Registry, tmp_path: Path):
    name = parse(push(hub, tmp_path, "team/given-up:1", BASE))
    first = asyncio.ensure_future(cache.get(name, "vision"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await cache.get(name, "vision")).config.user == ""


async def test_layers_of_zstd(cache: ImageCache, hub: Registry, tmp_path: Path):
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    packed = subprocess.run(["zstd", "-c"], input=CODE, capture_output=True, check=True).stdout
    layout = Layout(tmp_path / "image").image(CODE, blobs=[packed], kind="tar+zstd")
    image = await cache.get(parse(hub.push(layout.source(), "team/zstd:1")), "vision")
    assert content(image, "app/train.py") == "print('hello')\n"


async def test_an_index_has_an_image_for_this_machine(cache: ImageCache, hub: Registry, tmp_path: Path):
    layout = Layout(tmp_path / "image").image(BASE)
    layout.multi_platform()
    name = hub.push(layout.source(), "team/index:1", "--all")
    image = await cache.get(parse(name), "vision")
    assert image.digest == layout.digests["manifest"]
