"""What `test_user.py` has an ordinary user do: prints what became of each program, as JSON."""

import asyncio
import json
import sys
from pathlib import Path

from tests.engines.local.yard import Yard
from turnout.job import Policy, Resources


async def main(place: Path, sandbox: str) -> None:
    async with Yard(place, sandbox=sandbox) as yard:
        told = {}
        ends = {
            "code": await yard.run("sh", "-c", "id -u; exit 3"),
            "limited": await yard.run("sleep", "1000", policy=Policy(time_limit=0.2)),
            "memory": await yard.run(
                "python", "-c", "x = bytearray(400 << 20)", resources=Resources(cpu=1, memory=100 << 20)
            ),
            "daemon": await yard.run("sh", "-c", "setsid sleep 3000.11 & sleep 0.1"),
        }
        for name, end in ends.items():
            told[name] = (end.cause, end.code, yard.out(end.attempt), yard.out(end.attempt, stream=1))
        attempt = await yard.start("sh", "-c", "echo begin; sleep 1; exit 6")
        await yard.printed(attempt, "begin")
        await yard.kill_keeper()
        adopted = await yard.ended(attempt)
        told["adopted"] = (adopted.cause, adopted.code, "", "")
        print(json.dumps(told))


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
