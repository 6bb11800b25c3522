"""A pull on a small file system of its own, which other images fill."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images.conftest import OpenCache
from tests.images.oci import Layer, Layout
from turnout.errors import NotStored
from turnout.images import Archive, ImageCache, Progress

SIZE = 4 << 20
IMAGE = 900_000
"""While an image is unpacked, it needs twice as much, because it cannot be compressed."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")


@pytest.fixture
def disk(data: Path) -> Iterator[Path]:
    images = data / "images"
    images.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=711", "images", images], check=True)
    yield images
    subprocess.run(["umount", "--lazy", images], check=True)


def archive(directory: Path, name: str, size: int = IMAGE) -> Archive:
    return Archive(Layout(directory / name).image(Layer().file(name, os.urandom(size)).tar).source())


def is_cached(cache: ImageCache, source: Archive) -> bool:
    return cache.lookup(source, "vision") is not None


def left(disk: Path) -> tuple[int, int]:
    """Layers and downloads."""
    return len(os.listdir(disk / "layers")), len(os.listdir(disk / "downloads"))


async def fill(cache: ImageCache, directory: Path, clock: list[float]) -> dict[str, Archive]:
    """One image is in use, and another one was used after the last one was pulled."""
    sources = {name: archive(directory, name) for name in ("held", "used", "old")}
    for name, source in sources.items():
        clock[0] += 1
        await cache.get(source, "vision", holder="attempt 1" if name == "held" else "")
    clock[0] += 1
    assert is_cached(cache, sources["used"])
    cache.holders_known()
    return sources


async def test_the_longest_unused_image_makes_room(open_cache: OpenCache, disk: Path, tmp_path: Path):
    clock, told = [0.0], list[Progress]()
    async with open_cache(clock=lambda: clock[0]) as cache:
        sources = await fill(cache, tmp_path, clock)
        new = archive(tmp_path, "new")
        image = await cache.get(new, "vision", told.append)
        assert (image.layers[0] / "new").stat().st_size == IMAGE
        assert not is_cached(cache, sources["old"])
        assert is_cached(cache, sources["held"])
        assert is_cached(cache, sources["used"])
        assert left(disk) == (3, 0)
    [said] = [one.message for one in told if "made room" in one.message]
    assert said == f"the disk is full: {sources['old']} made room"


async def test_as_many_as_the_image_needs(open_cache: OpenCache, disk: Path, tmp_path: Path):
    clock = [0.0]
    async with open_cache(clock=lambda: clock[0]) as cache:
        sources = await fill(cache, tmp_path, clock)
        await cache.get(archive(tmp_path, "large", 3 * IMAGE // 2), "vision")
        assert [is_cached(cache, one) for one in sources.values()] == [True, False, False]


@pytest.mark.parametrize("size", [IMAGE, 3 * SIZE])
async def test_without_room_nothing_is_left(open_cache: OpenCache, disk: Path, tmp_path: Path, size: int):
    """Either all images are in use, or all of them together are smaller than what is missing: then none is deleted."""
    clock = [0.0]
    async with open_cache(clock=lambda: clock[0]) as cache:
        sources = await fill(cache, tmp_path, clock)
        for source in sources.values() if size == IMAGE else ():
            await cache.get(source, "vision", holder="attempt 2")
        new = archive(tmp_path, "new", size)
        with pytest.raises(
            NotStored, match=r"disk .*is full: .*no other images that no job uses: `turnout image ls`"
        ):
            await cache.get(new, "vision")
        assert all(is_cached(cache, source) for source in sources.values())
        assert not is_cached(cache, new)
        assert left(disk) == (3, 0)
        if size == IMAGE:
            cache.release("attempt 2")
            await cache.get(new, "vision")
            assert left(disk)[1] == 0


async def test_no_layer_of_an_image_that_did_not_fit_stays(open_cache: OpenCache, disk: Path, tmp_path: Path):
    """Its first layer was unpacked before the disk was full."""
    async with open_cache() as cache:
        cache.holders_known()
        layers = [Layer().file(str(number), os.urandom(IMAGE)).tar for number in range(3)]
        with pytest.raises(NotStored, match=r"disk .*is full"):
            await cache.get(Archive(Layout(tmp_path / "new").image(*layers).source()), "vision")
        assert left(disk) == (0, 0)
