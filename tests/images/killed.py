"""Pulls an image and removes it again; killed at a point on the way. Its unpackers are killed at theirs."""

import asyncio
import os
import sys
from pathlib import Path

from turnout import chaos
from turnout.child_processes.bootstrap import Identity
from turnout.child_processes.nobody import nobody
from turnout.errors import TurnoutError
from turnout.images import Archive, ImageCache
from turnout.limits import Limits


async def run(data: Path, source: str) -> None:
    owner = Identity(40_001, 40_001) if os.geteuid() == 0 else None
    cache = ImageCache(data / "images", {}, Limits(), owner, nobody())
    await cache.open()
    cache.holders_known()
    try:
        await cache.get(Archive(source), "vision")
        await cache.remove(source)
    except TurnoutError as error:
        print(error)
    await cache.close()


if __name__ == "__main__":
    _, chaos.kill_at, directory, archive = sys.argv
    asyncio.run(run(Path(directory), archive))
