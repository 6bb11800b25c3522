"""The runner gateway with many runners, each of which prints ten lines a second.

The runners are connections of one separate process: `python -m bench.runners PORT SECONDS`, with the scripts of their
jobs on its input. Between two calls they rest as the real runner does (`runner/node/reporter.py`). A script stands in
for Slurm: it keeps what it is given, and nothing is started.
"""

import asyncio
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import uvloop

from bench.floor import Floor
from bench.memory import watching
from bench.service import Service, running
from bench.table import Row, Table

GANG = 100
LINES_A_SECOND = 10
LINE = b"step 12345 loss 0.12345 accuracy 0.98765, 1234.5 samples/s\n"
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
STAND_IN = """\
#!/bin/sh
case $1 in
    sbatch*--test-only*) ;;
    sbatch*) cat >"{directory}/$$.new" && mv "{directory}/$$.new" "{directory}/$$.job" && echo $$ ;;
esac
"""


class Figures(msgspec.Struct):
    tells: list[float]
    """Seconds for each call."""
    lines: int
    seconds: float


def runners(table: Table, directory: Path, floor: Floor) -> None:
    count, seconds = (200, 5) if table.quick else (2000, 30)
    scripts = directory / "scripts"
    scripts.mkdir()
    stand_in = directory / "stand-in"
    stand_in.write_text(STAND_IN.format(directory=scripts))
    stand_in.chmod(0o755)
    cluster = f'[clusters.ap-beijing]\nengine = "slurm"\ncommand = ["{stand_in}"]\n'
    with running(directory / "service", settings=cluster) as service:
        assert service.process
        for number in range(count // GANG):
            service.line.ask(_gang(service, f"gang-{number}"))
        texts = _scripts(scripts, count // GANG)
        process = psutil.Process(service.process.pid)
        with watching(process.pid) as memory, _clients(service.port, seconds, texts) as clients:
            assert clients.stdout
            clients.stdout.readline()  # all have started
            before = process.cpu_times()
            found = msgspec.json.decode(clients.communicate()[0], type=Figures)
            after = process.cpu_times()
    used = (after.user + after.system - before.user - before.system) / found.seconds
    tells = sorted(found.tells)
    _add(table, count, found, tells, 100 * used, memory.peaks.service / 2**20)


def _add(table: Table, count: int, found: Figures, tells: list[float], cpu: float, memory: float) -> None:
    rate = found.lines / found.seconds
    wanted = count * LINES_A_SECOND
    what = f"lines of {count} runners taken, of {wanted:,} a second that they print"
    table.add(Row("runners lines", what, rate, "/s", wanted, better="more"))
    for name, value in (("p50", statistics.median(tells)), ("p99", tells[int(len(tells) * 0.99)])):
        detail = {"calls a second": len(tells) / found.seconds}
        table.add(Row(f"runners {name}", f"one call with lines, {name}", value * 1e3, "ms", detail=detail))
    table.add(Row("runners cpu", "service meanwhile, of one core", cpu, "%"))
    table.add(Row("runners memory", "service, peak", memory, "MB"))


def _gang(service: Service, name: str) -> bytes:
    document = {
        "Name": name,
        "Cluster": "ap-beijing",
        "RuntimeVersion": "tia-1.7.0",
        "ScaleTier": "CUSTOM",
        "MasterType": "1U1G0P",
        "WorkerType": "1U1G0P",
        "WorkerCount": GANG - 1,
        "Command": ["true"],
    }
    return service.requests.call("CreateJob", document)


def _scripts(directory: Path, count: int) -> list[str]:
    deadline = time.monotonic() + 60
    while len(found := list(directory.glob("*.job"))) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(found)} of {count} jobs were submitted")
        time.sleep(0.05)
    return [path.read_text() for path in found]


def _clients(port: int, seconds: float, scripts: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.runners", str(port), str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    process.stdin.write(json.dumps(scripts).encode() + b"\n")
    process.stdin.flush()
    return process


class Runner:
    """Two connections, as the real one has: one for orders, one for the rest."""

    def __init__(self, port: int, attempt: str, replica: str, token: str) -> None:
        self._port = port
        self._path = f"/runner/v1/{attempt}/{replica}/"
        self._head = f"Authorization: Bearer {token}\r\nX-Turnout-Runner: {os.urandom(16).hex()}\r\n"
        self.tells: list[float] = []
        self.lines = 0
        self._sent = 0

    async def begin(self, number: int) -> None:
        self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        claim = {"engine_id": "", "node": f"node-{number}", "pid": 1, "python": "3.11.2", "version": 1}
        await self.call("claim", claim)
        ports = [20000, 20001]
        home = f"/tmp/turnout-{number}"
        arrival = {
            "address": "127.0.0.1",
            "ports": ports,
            "home": home,
            "python": "python3",
            "sandbox": False,
        }
        while not (await self.call("arrive", arrival))["ready"]:
            pass
        await self.call("started", {"restarts": 0, "pid": 2, "at": time.time_ns()})
        self._orders = asyncio.create_task(self._wait_for_orders())

    async def _wait_for_orders(self) -> None:
        streams = await asyncio.open_connection("127.0.0.1", self._port)
        while True:
            await self.call("wait", {"seen": 0}, streams=streams)

    async def run(self, begin: float, seconds: float) -> None:
        end = begin + seconds
        while (now := time.perf_counter()) < end:
            printed = int((now - begin) * LINES_A_SECOND)
            if printed == self.lines:
                await asyncio.sleep(begin + (printed + 1) / LINES_A_SECOND - now)
                continue
            took = await self._tell(printed - self.lines)
            await asyncio.sleep(max(min(max(6 * took, SHORTEST_PAUSE), LONGEST_PAUSE) - took, 0))
        if rest := int(seconds * LINES_A_SECOND) - self.lines:
            await self._tell(rest)

    async def _tell(self, lines: int) -> float:
        data = LINE * lines
        size = self._sent + len(data)
        piece = {"stream": 0, "offset": self._sent, "size": len(data)}
        header = {
            "pieces": [piece],
            "marks": [[time.time_ns(), size, 0]],
            "samples": [],
            "idle": 0.0,
            "files": {},
        }
        before = time.perf_counter()
        answer = await self.call("tell", header, b"\n" + data)
        took = time.perf_counter() - before
        assert answer["sizes"][0] == size, answer
        self._sent, self.lines = size, self.lines + lines
        self.tells.append(took)
        return took

    async def call(self, name: str, body: dict[str, Any], data: bytes = b"", streams: Any = None) -> Any:
        reader, writer = streams or self._streams
        content = json.dumps(body).encode() + data
        head = f"POST {self._path}{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n{self._head}"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(answer.partition(b"content-length: ")[2].partition(b"\r")[0])
        found = await reader.readexactly(size)
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise RuntimeError(f"{name}: {found.decode()}")
        return json.loads(found)


async def _drive(port: int, seconds: float, scripts: list[str]) -> Figures:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    made: list[Runner] = []
    for text in scripts:
        [token] = re.findall(r"^export TURNOUT_TOKEN=(\S+)$", text, re.MULTILINE)
        attempt = re.search(r"ap-beijing/([0-9]+\.[0-9]+)", text)
        assert attempt
        names = ["master-0", *(f"worker-{index}" for index in range(GANG - 1))]
        made += [Runner(port, attempt[1], name, token.strip("'")) for name in names]
    await asyncio.gather(*(one.begin(number) for number, one in enumerate(made)))
    print(flush=True)
    begin = time.perf_counter()
    await asyncio.gather(*(one.run(begin, seconds) for one in made))
    took = time.perf_counter() - begin
    return Figures([tell for one in made for tell in one.tells], sum(one.lines for one in made), took)


if __name__ == "__main__":
    figures = uvloop.run(_drive(int(sys.argv[1]), float(sys.argv[2]), json.loads(sys.stdin.readline())))
    print(msgspec.json.encode(figures).decode(), flush=True)
