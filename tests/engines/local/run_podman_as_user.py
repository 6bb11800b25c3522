"""Runs as an ordinary user for `test_podman.py`. Prints how the program ended, as JSON."""

import asyncio
import json
import sys
from pathlib import Path

from tests.engines.local.harness import PodmanHarness


async def main(base_dir: Path) -> None:
    async with PodmanHarness(base_dir) as harness:
        end = await harness.run("sh", "-c", "id -u; echo x > /etc/mine && exit 3", user=1000)
        print(json.dumps([end.cause, end.code, harness.output(end.attempt), end.message]))


asyncio.run(main(Path(sys.argv[1])))
