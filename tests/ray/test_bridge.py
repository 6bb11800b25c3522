"""The service's side of the bridge, against a script that speaks its protocol and misbehaves when asked to."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from turnout.engines import Refused, Unreachable
from turnout.engines.ray import RayCluster, RaySettings
from turnout.engines.ray.bridge import Bridge
from turnout.engines.remote import EndKind, Gang, Phase, RunnerCall
from turnout.job import Attempt, Launch, Program, ReplicaName, Role, Spec

# Answers each request as the file `replies.json` says, and records it. `{}` is no answer at all.
FAKE = """#!{python}
import json, os, sys
place = {place!r}
replies = lambda: json.load(open(place + "/replies.json"))
with open(place + "/starts", "a") as file:
    file.write(json.dumps([os.getpid(), sys.argv[1:], dict(os.environ)]) + "\\n")
print(json.dumps(replies()["first"]), flush=True)
if replies()["first"]["event"] != "ready":
    sys.exit(1)
for line in sys.stdin:
    request = json.loads(line)
    with open(place + "/requests", "a") as file:
        file.write(line)
    reply = replies().get(request["call"], {{}})
    if reply == "die":
        os._exit(3)
    if reply:
        print(json.dumps({{"id": request["id"], **reply}}), flush=True)
"""
READY = {"event": "ready", "ray": "2.60.0", "python": "3.11.7"}
NODES = [{"address": "10.0.0.7", "resources": {"CPU": 4.0}}]
GANG = {
    "handle": "c57a", "name": "turnout-7.1", "state": "CREATED", "bundles": [{"CPU": 1.0}], "strategy": "PACK",
    "nodes": ["10.0.0.7"], "members": [{"name": "worker-0", "over": None}],
}  # fmt: skip


class Fake:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.python = place / "python"
        self.python.write_text(FAKE.format(python=sys.executable, place=str(place)))
        self.python.chmod(0o755)
        self.reply(first=READY)

    def reply(self, **replies: Any) -> None:
        """`first`, and what each call is answered with."""
        file = self.place / "replies.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        file.with_suffix(".new").write_text(json.dumps(known | replies))
        file.with_suffix(".new").replace(file)

    @property
    def starts(self) -> list[Any]:
        return self._lines("starts")

    @property
    def requests(self) -> list[Any]:
        return self._lines("requests")

    def _lines(self, name: str) -> list[Any]:
        try:
            return [json.loads(line) for line in (self.place / name).read_text().splitlines()]
        except FileNotFoundError:
            return []

    @property
    def settings(self) -> RaySettings:
        return RaySettings({"PATH": os.environ["PATH"]}, "10.0.0.1:6379", str(self.python))


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


@pytest.fixture
async def cluster(fake: Fake) -> AsyncIterator[RayCluster]:
    one = RayCluster("gpu", fake.settings, seconds=5)
    await one.open()
    yield one
    await one.close()


def gang() -> Gang:
    launch = Launch(Attempt(7, 1), "p", "tia", "job", Spec((Role("worker", Program(("true",)), leads=True),)))
    return Gang("turnout-7.1", launch, RunnerCall("http://10.0.0.5:8470", "gpu", "token", "", "", "cd"))


async def eventually(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Until the bridge can be asked."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await ask()
            except Unreachable:
                await asyncio.sleep(0.05)


async def test_a_submit_and_a_cancel(fake: Fake, cluster: RayCluster):
    fake.reply(submit={"result": "c57a"}, cancel={"result": None})
    assert await cluster.submit(gang()) == "c57a"
    await cluster.cancel("c57a")
    submit, cancel = fake.requests
    assert (submit["call"], submit["arguments"]["name"]) == ("submit", "turnout-7.1")
    assert (cancel["call"], cancel["arguments"]) == ("cancel", {"handle": "c57a"})


async def test_the_token_is_in_no_command_line_and_no_environment(fake: Fake, cluster: RayCluster):
    fake.reply(submit={"result": "c57a"})
    await cluster.submit(gang())
    [[_, arguments, environment]] = fake.starts
    assert "token" not in json.dumps([arguments[-1:], environment])
    assert set(environment) - {"LC_CTYPE"} == {"PATH"}


async def test_a_list_says_where_gangs_are_and_why_they_wait(fake: Fake, cluster: RayCluster):
    waits = GANG | {"handle": "02014", "state": "PENDING", "nodes": [], "bundles": [{"CPU": 4.0}]}
    fake.reply(list={"result": [GANG, waits]}, nodes={"result": NODES}, available={"result": {"CPU": 3.0}})
    first, second = await anext(cluster.watch())
    assert (first.phase, first.nodes) == (Phase.RUNNING, "10.0.0.7")
    assert second.why == "Ray: waiting for resources: it needs 4 CPU for 1 replica; 3 CPU of 4 CPU are free"


async def test_a_look(fake: Fake, cluster: RayCluster):
    ended = [{"name": "worker-0", "over": {"code": 75, "words": "there is no token"}}]
    fake.reply(look={"result": GANG | {"members": ended}})
    found = await cluster.look("c57a")
    assert found is not None
    assert (found.phase, found.end) == (Phase.ENDED, EndKind.EXITED)
    assert await cluster.last_words("c57a", ReplicaName("worker", 0)) == "there is no token"
    fake.reply(look={"result": None})
    assert await cluster.look("c57a") is None


async def test_a_bridge_that_is_killed_is_started_again(fake: Fake, cluster: RayCluster):
    fake.reply(look={"result": None})
    await cluster.look("c57a")
    os.kill(fake.starts[0][0], signal.SIGKILL)
    assert await eventually(lambda: cluster.look("c57a")) is None
    assert len(fake.starts) == 2


async def test_a_request_that_dies_with_its_bridge_is_no_answer(fake: Fake, cluster: RayCluster):
    fake.reply(submit="die")
    with pytest.raises(Unreachable, match="the bridge to Ray ended"):
        await cluster.submit(gang())
    fake.reply(submit={"result": "c57a"})
    assert await eventually(lambda: cluster.submit(gang())) == "c57a"


async def test_a_bridge_that_does_not_answer_is_ended(fake: Fake):
    bridge = Bridge(fake.settings, lambda: None, seconds=0.5)
    await bridge.open()
    try:
        with pytest.raises(Unreachable, match=r"Ray did not answer within 0\.5 s"):
            await bridge.ask("list")
        fake.reply(list={"result": []})
        assert await eventually(lambda: bridge.ask("list")) == []
    finally:
        await bridge.close()
    assert len(fake.starts) == 2


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Failed to connect to GCS within 60 seconds", Unreachable),
        ("placement group `bundles` argument cannot contain only zero resources", Refused),
    ],
)
async def test_what_ray_says_no_to(fake: Fake, cluster: RayCluster, message: str, kind: type[Exception]):
    fake.reply(submit={"error": message})
    with pytest.raises(kind, match="Ray: "):
        await cluster.submit(gang())


async def test_a_cluster_that_is_away_says_why(fake: Fake):
    fake.reply(first={"event": "failed", "message": "nothing answers at 10.0.0.1:6379: Connection refused"})
    cluster = RayCluster("gpu", fake.settings, seconds=3)
    await cluster.open()
    try:
        with pytest.raises(
            Unreachable, match=r"Ray: nothing answers at 10\.0\.0\.1:6379: Connection refused"
        ):
            await cluster.look("c57a")
        fake.reply(first=READY, look={"result": None})
        assert await eventually(lambda: cluster.look("c57a")) is None
    finally:
        await cluster.close()


async def test_an_interpreter_that_is_not_there(fake: Fake):
    cluster = RayCluster("gpu", fake.settings._replace(python="/nowhere/python"), seconds=1)
    await cluster.open()
    try:
        with pytest.raises(Unreachable, match="/nowhere/python cannot be run: No such file or directory"):
            await cluster.look("c57a")
    finally:
        await cluster.close()


async def test_an_interpreter_without_ray(fake: Fake):
    cluster = RayCluster("gpu", fake.settings._replace(python=sys.executable), seconds=5)
    await cluster.open()
    try:
        with pytest.raises(Unreachable, match=r"has no Ray \(No module named 'ray'\): set `python`"):
            await cluster.look("c57a")
    finally:
        await cluster.close()


async def test_a_check(fake: Fake, cluster: RayCluster):
    said = {"node": "10.0.0.7", "python": "3.11.7", "trouble": ""}
    fake.reply(nodes={"result": NODES}, check={"result": said})
    results = [one async for one in cluster.check(gang().runner)]
    assert [(one.what, one.ok, one.detail) for one in results] == [
        (f"{fake.python} reaches Ray", True, "Ray 2.60.0, Python 3.11.7, address 10.0.0.1:6379"),
        ("nodes", True, "1 with 4 CPU"),
        ("a node runs a task", True, "Python 3.11.7 on 10.0.0.7"),
        ("a node reaches http://10.0.0.5:8470", True, ""),
    ]
    fake.reply(check={"result": said | {"trouble": "timed out"}})
    *_, last = [one async for one in cluster.check(gang().runner)]
    assert not last.ok
    assert last.detail == "timed out; set [runner] url to an address of this service that nodes reach"


async def test_a_check_of_resources_that_no_node_has(fake: Fake):
    fake.reply(nodes={"result": NODES})
    cluster = RayCluster("gpu", fake.settings._replace(resources={"rack": 1.0}), seconds=5)
    await cluster.open()
    try:
        *_, last = [one async for one in cluster.check(gang().runner)]
    finally:
        await cluster.close()
    assert (last.what, last.ok, last.detail) == ("resources", False, "no node has rack")
