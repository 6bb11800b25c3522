"""The cache: what stays, what goes, and what survives a kill at any point."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.images.conftest import OpenCache
from tests.images.oci import Layer, Layout
from turnout.errors import NotFound, NotStored, WrongState
from turnout.images import Archive, parse
from turnout.images.download import Download
from turnout.limits import Limits

BASE = Layer().file("base", bytes(40_000)).tar


def archive(directory: Path, name: str, *layers: bytes) -> Archive:
    content = layers or (BASE, Layer().file(name, bytes(100_000)).tar)
    return Archive(Layout(directory / name).image(*content).source())


def on_disk(data: Path) -> int:
    return len(list((data / "images" / "layers").iterdir()))


async def test_the_longest_unused_image_goes(open_cache: OpenCache, tmp_path: Path, data: Path):
    clock = [0.0]
    sources = [archive(tmp_path, name) for name in ("one", "two", "three")]
    async with open_cache(limits=Limits(image_cache_bytes=260_000), clock=lambda: clock[0]) as cache:
        for source in sources[:2]:
            clock[0] += 1
            await cache.get(source, "vision")
        cache.holders_known()
        clock[0] += 1
        assert cache.lookup(sources[0], "vision"), "it is used again"
        await cache.get(sources[2], "vision")
        await cache.collect()
        assert [cache.lookup(one, "vision") is not None for one in sources] == [True, False, True]
        assert on_disk(data) == 3


async def test_what_is_held_or_imported_stays(open_cache: OpenCache, tmp_path: Path, data: Path):
    sources = [archive(tmp_path, name) for name in ("held", "imported", "free")]
    async with open_cache(limits=Limits(image_cache_bytes=1)) as cache:
        held = await cache.get(sources[0], "vision", holder="attempt 1")
        await cache.add(sources[1], parse("team/imported:1"))
        await cache.get(sources[2], "vision")
        await cache.collect()
        assert on_disk(data) == 4, "nothing goes before all holders are known"
    async with open_cache(limits=Limits(image_cache_bytes=1)) as cache:
        assert cache.find(held.digest)
        cache.hold("attempt 1", held.digest)
        cache.holders_known()
        await cache.collect()
        assert cache.lookup(sources[2], "vision") is None
        assert cache.lookup(parse("team/imported:1"), "anyone")
        with pytest.raises(WrongState, match="a job uses the image"):
            await cache.remove(str(sources[0]))
        cache.release("attempt 1")
        assert await cache.remove(str(sources[0])) > 100_000
        assert not held.layers[0].exists()
        assert on_disk(data) == 2
        with pytest.raises(NotFound):
            await cache.remove("nothing")


async def test_an_image_that_is_larger_than_the_cache_stays_for_whom_it_was_pulled(
    open_cache: OpenCache, tmp_path: Path, data: Path
):
    source = archive(tmp_path, "large")
    async with open_cache(limits=Limits(image_cache_bytes=1)) as cache:
        cache.holders_known()
        both = await asyncio.gather(
            cache.get(source, "vision", holder="attempt 1"), cache.get(source, "vision")
        )
        await cache.collect()
        assert both[0].layers[0].exists()
        assert cache.lookup(source, "vision") == both[1]
        cache.release("attempt 1")
        await cache.collect()
        assert on_disk(data) == 0
        await cache.get(source, "vision")
        await cache.collect()
        assert on_disk(data) == 0


async def test_an_image_stays_while_its_pull_ends(
    open_cache: OpenCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another pull may end at any time, and what nobody needs is deleted then."""
    deleted: list[int] = []
    async with open_cache() as cache:
        cache.holders_known()
        original = Download.remove

        async def remove(download: Download) -> None:
            deleted.append(await cache.collect())
            await original(download)

        monkeypatch.setattr(Download, "remove", remove)
        image = await cache.get(archive(tmp_path, "one"), "vision", holder="attempt 1")
    assert deleted == [0]
    assert image.layers[0].exists()


async def test_a_layer_that_comes_twice_and_one_that_hides_all_below(open_cache: OpenCache, tmp_path: Path):
    top, opaque = Layer().file("top").tar, Layer().file(".wh..wh..opq").file("new").tar
    async with open_cache() as cache:
        twice = await cache.get(archive(tmp_path, "twice", BASE, top, BASE), "vision")
        assert [sorted(os.listdir(one)) for one in twice.layers] == [["base"], ["top"]]
        hidden = await cache.get(archive(tmp_path, "hidden", BASE, opaque, top), "vision")
        assert [sorted(os.listdir(one)) for one in hidden.layers] == [["top"], ["new"]]


async def test_a_layer_that_was_removed_by_hand_is_fetched_again(open_cache: OpenCache, tmp_path: Path):
    source = archive(tmp_path, "image")
    async with open_cache() as cache:
        image = await cache.get(source, "vision")
    image.layers[0].rename(image.layers[0].with_name("elsewhere"))
    async with open_cache() as cache:
        assert cache.lookup(source, "vision") is None
        assert (await cache.get(source, "vision")).layers == image.layers
        assert image.layers[0].is_dir()


async def test_an_index_that_cannot_be_read_is_set_aside(open_cache: OpenCache, tmp_path: Path, data: Path):
    source = archive(tmp_path, "image")
    async with open_cache() as cache:
        await cache.get(source, "vision")
    (data / "images" / "images.json").write_text("no index")
    async with open_cache() as cache:
        assert cache.cached("vision", root=True) == []
        await cache.get(source, "vision")
    assert (data / "images" / "images.json.bad").read_text() == "no index"


POINTS = [
    "image-downloading",
    "image-unpacked",
    "image-layer",
    "image-complete",
    "image-collected",
    "image-removing",
]


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_leaves_nothing_half_made(point: str, open_cache: OpenCache, tmp_path: Path, data: Path):
    """A process with a cache is killed at the point; the next one finishes the work with what is there."""
    source = archive(tmp_path, "image")
    program = [sys.executable, str(Path(__file__).with_name("killed.py")), point, str(data), source.source]
    killed = subprocess.run(program, capture_output=True, timeout=120)
    of_the_unpacker = point in ("image-unpacked", "image-removing")
    assert killed.returncode == (0 if of_the_unpacker else -signal.SIGKILL), killed.stderr.decode()
    async with open_cache() as cache:
        cache.holders_known()
        image = cache.lookup(source, "vision")
        assert image is None or all(len(os.listdir(one)) == 1 for one in image.layers)
        image = await cache.get(source, "vision")
        assert [os.listdir(one) for one in image.layers] == [["image"], ["base"]]
        assert [
            (one / name).stat().st_size for one, name in zip(image.layers, ("image", "base"), strict=True)
        ] == [
            100_000,
            40_000,
        ]
        await cache.collect()
        assert on_disk(data) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
async def test_a_full_disk(open_cache: OpenCache, tmp_path: Path, data: Path):
    size = 24 << 20
    with open(tmp_path / "disk", "wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(tmp_path / "disk")], check=True)
    if subprocess.run(
        ["mount", "-o", "loop", str(tmp_path / "disk"), str(data)], capture_output=True
    ).returncode:
        pytest.skip("no loop devices")
    try:
        data.chmod(0o711)
        await fill(open_cache, tmp_path, data)
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


async def fill(open_cache: OpenCache, tmp_path: Path, data: Path) -> None:
    """The compressed layers fit, and the unpacked ones do not."""
    large = archive(tmp_path, "large", Layer().file("zeros", bytes(64 << 20)).tar)
    small = archive(tmp_path, "small")
    async with open_cache() as cache:
        cache.holders_known()
        with pytest.raises(NotStored, match="is full"):
            await cache.get(large, "vision")
        assert on_disk(data) == 0
        assert list((data / "images" / "downloads").iterdir()) == []
        assert (await cache.get(small, "vision")).layers[0].is_dir()
        huge = archive(tmp_path, "huge", Layer().file("noise", os.urandom(32 << 20)).tar)
        with pytest.raises(
            NotStored, match=r"the disk is full: [0-9]+ bytes of the image's layers are to be"
        ):
            await cache.get(huge, "vision")
        assert cache.lookup(small, "vision")
