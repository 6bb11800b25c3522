"""Runs as an ordinary user for `test_ordinary_user.py`. Prints how each program ended, as JSON."""

import asyncio
import json
import socket
import sys
from pathlib import Path

from tests.engines.local.escapes import harness_with_buckets, send_descriptors, try_attacks
from turnout.job import Policy, Resources


async def main(base_dir: Path, sandbox: str) -> None:
    async with harness_with_buckets(base_dir, sandbox) as harness:
        results = {}
        ends = {
            "code": await harness.run("sh", "-c", "id -u; exit 3"),
            "limited": await harness.run("sleep", "1000", policy=Policy(time_limit=0.2)),
            "memory": await harness.run(
                "python", "-c", "x = bytearray(400 << 20)", resources=Resources.of(cores=1, memory=100 << 20)
            ),
            "seccomp": await harness.run("grep", "^Seccomp:", "/proc/self/status"),
            "daemon": await harness.run("sh", "-c", "setsid sleep 3000.11 & sleep 0.1"),
        }
        for name, end in ends.items():
            results[name] = (
                end.cause,
                end.code,
                harness.output(end.attempt),
                harness.output(end.attempt, stream=1),
            )
        attempt = await harness.start("sh", "-c", "echo begin; sleep 1; exit 6")
        await harness.wait_for_output(attempt, "begin")
        await harness.kill_supervisor()
        adopted = await harness.ended(attempt)
        results["adopted"] = (adopted.cause, adopted.code, "", "")
        results["network"] = harness.engine._machine.network.own
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = str(listener.getsockname()[1])
            tried = await harness.run(
                "python",
                "-c",
                "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))",
                port,
            )
        results["loopback"] = tried.code
        results["escapes"] = []
        for shared in (False, True):
            sent = await send_descriptors(harness, shared, count=34)
            results["escapes"].append((sent.arrived, "secret" in sent.found, sorted(sent.victims)))
        results["attacks"] = [await try_attacks(harness, shared) for shared in (False, True)]
        print(json.dumps(results))


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
