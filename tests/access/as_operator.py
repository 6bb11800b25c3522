"""Run by `test_peers.py` as an ordinary user: connects from inside and outside of jobs, and prints the result."""

import asyncio
import json
import socket
import sys
from pathlib import Path

from tests.engines.local.harness import EngineHarness
from turnout.access.peers import same_user

CONNECT = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
DAEMON = "import os, time\nif os.fork(): time.sleep(1000)\nos.setsid()\nif os.fork(): os._exit(0)\n" + CONNECT


async def main(place: Path) -> None:
    told: dict[str, bool] = {}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = str(listener.getsockname()[1])
        for sandbox in ("bubblewrap", "none"):
            async with EngineHarness(place / sandbox, sandbox=sandbox, network="host") as harness:
                await harness.python(CONNECT, port)
                told[sandbox] = await verdict(listener)
                await harness.start("env", "-i", "/usr/bin/python3", "-c", DAEMON, port)
                told[f"{sandbox}, hidden"] = await verdict(listener)
        reach = [f"127.0.0.1:{port}"]
        async with EngineHarness(
            place / "private", sandbox="bubblewrap", network="private", reach=reach
        ) as harness:
            await harness.python(CONNECT, port)
            told["reach"] = await verdict(listener)
        mine = await asyncio.create_subprocess_exec("/usr/bin/python3", "-c", CONNECT, port)
        told["mine"] = await verdict(listener)
        await mine.wait()
    print(json.dumps(told))


async def verdict(listener: socket.socket) -> bool:
    async with asyncio.timeout(30):
        line, client = await asyncio.get_running_loop().sock_accept(listener)
    with line:
        return same_user(client, line.getsockname())


asyncio.run(main(Path(sys.argv[1])))
