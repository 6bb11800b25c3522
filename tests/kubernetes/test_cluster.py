"""The adapter against an API server: one in memory that runs no pods, and for what needs none, also the real one."""

import asyncio
import contextlib
import itertools
import json
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.fake_api import FakeApi
from turnout.engines import Refused, Unreachable
from turnout.engines.kubernetes import (
    KubernetesCluster,
    KubernetesSettings,
    cleanup,
    cluster,
    placement,
    runner_map,
)
from turnout.engines.kubernetes.gangs import TURN, PlacedGang
from turnout.engines.kubernetes.objects import REPLICA, handle_of
from turnout.engines.kubernetes.states import DELETED
from turnout.engines.remote import ClusterJob, EndKind, Gang, Phase, RunnerCall
from turnout.job import Attempt, Launch, Program, ReplicaName, Resources, Role, Spec
from turnout.runner import archive

TIMEOUT = 20
MASTER, WORKER = ReplicaName("master", 0), ReplicaName("worker", 0)
RUNNING = {"phase": "Running"}
FORBIDDEN = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}
_attempts = itertools.count(time.time_ns() // 1000)


class Lab:
    """A cluster that watches, as the remote engine makes it do."""

    def __init__(self, directory: Path, url: str, token: str = "", **settings: Any) -> None:
        self.directory = directory
        self.url = url
        self.jobs: dict[str, ClusterJob] = {}
        self.lists = 0
        self.given = settings
        kubeconfig = directory / "kubeconfig"
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "c", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        kubeconfig.write_text(json.dumps(content))
        chosen = {"namespace": "turnout", "image": "localhost/python:1", **settings}
        self.cluster = KubernetesCluster(
            "lab", KubernetesSettings({}, kubeconfig=str(kubeconfig), **chosen), directory / "lab"
        )
        self.archive, _ = archive.build(directory)

    async def __aenter__(self) -> "Lab":
        await self.cluster.open()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watching
        await self.cluster.close()

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(Unreachable):
                async with aclosing(self.cluster.watch()) as lists:
                    async for jobs in lists:
                        self.jobs = {job.handle: job for job in jobs}
                        self.lists += 1
            await asyncio.sleep(0.05)

    def gang(self, replicas: int = 1, dialect: str = "tia", attempt: Attempt | None = None) -> Gang:
        command = Program(("true",))
        roles = [Role("master", command, resources=Resources.of(1, 1 << 20), leads=True)]
        roles += [Role("worker", command, replicas - 1)] if replicas > 1 else []
        attempt = attempt or Attempt(next(_attempts), 1)
        runner = RunnerCall("http://10.0.0.1:1", "lab", "token", "", str(self.archive), "digest")
        launch = Launch(attempt, "default", dialect, "job", Spec(tuple(roles)))
        return Gang(f"turnout-{attempt}", launch, runner)

    async def listed(self, handle: str, wanted: Callable[[ClusterJob], object]) -> ClusterJob:
        await eventually(lambda: handle in self.jobs and wanted(self.jobs[handle]))
        return self.jobs[handle]


async def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(placement, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(cleanup, "CALM_SECONDS", 0.2)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as one:
        yield one


@pytest.fixture
async def lab(api: FakeApi, tmp_path: Path) -> AsyncIterator[Lab]:
    async with Lab(tmp_path, api.url) as one:
        yield one


def pod_of(api: FakeApi, handle: str, replica: str = "master-0") -> dict[str, Any]:
    found = [pod for pod in api.all("pods") if pod["metadata"]["labels"]["turnout/gang"] == handle]
    return next(pod for pod in found if pod["metadata"]["labels"]["turnout/replica"] == replica)


def roots(api: FakeApi) -> list[dict[str, Any]]:
    """The ConfigMaps that own gangs."""
    return [one for one in api.all("configmaps") if "turnout/gang" in one["metadata"]["labels"]]


async def pods(api: FakeApi, count: int) -> list[dict[str, Any]]:
    await eventually(lambda: len(api.all("pods")) == count)
    return api.all("pods")


@pytest.mark.parametrize(("names", "services"), [("auto", 0), ("always", 1)])
async def test_a_gang_becomes_its_objects_and_goes_with_them(
    api: FakeApi, tmp_path: Path, names: str, services: int
):
    async with Lab(tmp_path, api.url, names=names) as lab:
        handle = await lab.cluster.submit(lab.gang(2))
        await pods(api, 2)
        found = len(roots(api)), len(api.all("secrets")), len(api.all("services"))
        assert found == (1, 1, services)
        [secret] = api.all("secrets")
        assert secret["stringData"] == {"token": "token"}
        await lab.cluster.cancel(handle)
        assert [*api.all("pods"), *roots(api), *api.all("secrets"), *api.all("services")] == []
        await lab.cluster.cancel(handle)
        await lab.cluster.forget(handle)
        assert await lab.cluster.look(handle) is None


async def test_the_service_of_an_earlier_attempt_is_replaced(lab: Lab, api: FakeApi):
    first = lab.gang(2, "modelarts")
    attempt = first.launch.attempt
    await lab.cluster.submit(first)
    [before] = api.all("services")
    second = await lab.cluster.submit(lab.gang(2, "modelarts", Attempt(attempt.job, 2)))
    [service] = api.all("services")
    assert service["metadata"]["name"] == before["metadata"]["name"]
    assert service["spec"]["selector"] == {"turnout/gang": second}
    # What the first attempt still has goes, and the Service of the second stays.
    await lab.cluster.cancel(handle_of(first.name))
    assert len(api.all("services")) == 1
    api.refuses["services"] = {**FORBIDDEN, "reason": "AlreadyExists", "code": 409}
    with pytest.raises(Unreachable, match=f"the Service {before['metadata']['name']} .* is still there"):
        await lab.cluster.submit(lab.gang(2, "modelarts", Attempt(attempt.job, 3)))


@pytest.mark.parametrize("labels", [None, {"turnout/owner": "another service"}])
async def test_somebody_elses_service_stays(lab: Lab, api: FakeApi, labels: dict[str, str] | None):
    first = lab.gang(2, "modelarts")
    handle = await lab.cluster.submit(first)
    [service] = api.all("services")
    name, uid = service["metadata"]["name"], service["metadata"]["uid"]
    del service["metadata"]["labels"]
    if labels:
        service["metadata"]["labels"] = labels
    with pytest.raises(Refused, match=f"a Service {name}, and there is another one of this name"):
        await lab.cluster.submit(lab.gang(2, "modelarts", Attempt(first.launch.attempt.job, 2)))
    assert [one["metadata"]["uid"] for one in api.all("services")] == [uid]
    await lab.cluster.cancel(handle)


@pytest.mark.parametrize("patience", [60.0, 0.5])
async def test_what_ended_goes_when_nothing_starts_or_after_a_while(
    lab: Lab, api: FakeApi, monkeypatch: pytest.MonkeyPatch, patience: float
):
    monkeypatch.setattr(cleanup, "PATIENCE", patience)
    first = await lab.cluster.submit(lab.gang())
    await pods(api, 1)
    api.update(pod_of(api, first), {"phase": "Succeeded"}, "node1")
    await lab.listed(first, lambda job: job.phase is Phase.ENDED)
    second = await lab.cluster.submit(lab.gang())
    await pods(api, 2)
    await lab.cluster.forget(first)
    await eventually(lambda: first not in lab.jobs)
    if patience > 1:
        assert len(api.all("pods")) == 2
        api.update(pod_of(api, second), RUNNING, "node1")
    await pods(api, 1)
    assert pod_of(api, second)
    await eventually(lambda: len(roots(api)) == 1)


async def test_a_gang_is_made_once(lab: Lab, api: FakeApi):
    gang = lab.gang()
    handle = await lab.cluster.submit(gang)
    assert await lab.cluster.submit(gang) == handle
    api.loses_answers = 1
    other = lab.gang()
    with contextlib.suppress(Unreachable):
        await lab.cluster.submit(other)
    await lab.cluster.submit(other)
    await pods(api, 2)
    assert len(roots(api)) == 2


async def test_the_runner_is_stored_once_and_again_if_somebody_deletes_it(
    lab: Lab, api: FakeApi, monkeypatch: pytest.MonkeyPatch
):
    await lab.cluster.submit(lab.gang())
    await lab.cluster.submit(lab.gang())
    path = "/api/v1/namespaces/turnout/configmaps"
    [shared] = [one for one in api.all("configmaps") if one not in roots(api)]
    name = shared["metadata"]["name"]
    assert {one["metadata"]["labels"]["turnout/runner"] for one in roots(api)} == {name}
    api.remove(path, name)
    monkeypatch.setattr(runner_map, "_SEEN_SECONDS", 0.0)
    await lab.cluster.submit(lab.gang())
    assert name in api.objects[path]


async def test_runners_of_earlier_versions_go_unless_a_gang_has_them(lab: Lab, api: FakeApi):
    first = await lab.cluster.submit(lab.gang())
    path = "/api/v1/namespaces/turnout/configmaps"
    owner = roots(api)[0]["metadata"]["labels"]["turnout/owner"]
    for name in ("old", "used"):
        labels = {"turnout/owner": owner, "turnout/part": "runner"}
        api.objects[path][name] = {"metadata": {"name": name, "uid": name, "labels": labels}}
    api.objects[path][first]["metadata"]["labels"]["turnout/runner"] = "used"
    lab.archive = lab.archive.rename(lab.archive.with_name("other.pyz"))
    with zipfile.ZipFile(lab.archive, "a") as newer:
        newer.writestr("newer.py", "")
    await lab.cluster.submit(lab.gang())
    left = {one["metadata"]["name"] for one in api.all("configmaps") if one not in roots(api)}
    assert "old" not in left
    assert "used" in left
    assert len(left) == 2, "the new one, and not the one from before"


async def test_what_is_listed_follows_the_pods(lab: Lab, api: FakeApi):
    handle = await lab.cluster.submit(lab.gang())
    await lab.listed(handle, lambda job: "waits for the scheduler" in job.why)
    api.update(pod_of(api, handle), RUNNING, "node1")
    job = await lab.listed(handle, lambda job: job.phase is Phase.RUNNING)
    assert (job.nodes, job.is_own) == ("node1", True)
    ended = {"name": "program", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    api.update(pod_of(api, handle), {"phase": "Failed", "containerStatuses": [ended]})
    job = await lab.listed(handle, lambda job: job.phase is Phase.ENDED)
    assert job.end is EndKind.OUT_OF_MEMORY


async def test_many_changes_are_few_lists(lab: Lab, api: FakeApi):
    handle = await lab.cluster.submit(lab.gang())
    [pod] = await pods(api, 1)
    before, began = lab.lists, time.monotonic()
    for _ in range(100):
        api.update(pod, RUNNING, "node1")
        await asyncio.sleep(0.005)
    api.update(pod, {"phase": "Succeeded"}, "node1")
    await lab.listed(handle, lambda job: job.phase is Phase.ENDED)
    assert lab.lists - before <= (time.monotonic() - began) / cluster.PAUSE + 2


async def test_one_pod_of_several_that_goes(lab: Lab, api: FakeApi):
    handle = await lab.cluster.submit(lab.gang(2))
    for pod in await pods(api, 2):
        api.update(pod, RUNNING, "node1")
    await lab.listed(handle, lambda job: job.phase is Phase.RUNNING)
    gone = pod_of(api, handle, "worker-0")
    api.remove("/api/v1/namespaces/turnout/pods", gone["metadata"]["name"])
    job = await lab.listed(handle, lambda job: job.gone)
    assert job.phase is Phase.RUNNING
    assert job.gone == {str(WORKER): (EndKind.CANCELLED, DELETED)}


@pytest.mark.parametrize("how", ["cut", "forget_history"])
async def test_a_watch_that_breaks(lab: Lab, api: FakeApi, how: str):
    handle = await lab.cluster.submit(lab.gang())
    await pods(api, 1)
    await eventually(lambda: lab.lists)
    getattr(api, how)()
    api.update(pod_of(api, handle), RUNNING, "node1")
    await lab.listed(handle, lambda job: job.phase is Phase.RUNNING)


async def test_a_pod_that_is_missing_in_a_list_is_not_gone(lab: Lab, api: FakeApi):
    handle = await lab.cluster.submit(lab.gang())
    [pod] = await pods(api, 1)
    api.update(pod, RUNNING, "node1")
    await lab.listed(handle, lambda job: job.phase is Phase.RUNNING)
    api.hides.add(pod["metadata"]["name"])
    before = lab.lists
    api.forget_history()
    await eventually(lambda: lab.lists > before + 1)
    assert lab.jobs[handle].phase is Phase.RUNNING


async def test_a_new_process_finds_gangs_that_were_placed_and_places_the_others(
    lab: Lab, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    placed = await lab.cluster.submit(lab.gang())
    await pods(api, 1)
    with monkeypatch.context() as patch:
        patch.setattr(placement.Placement, "begin", lambda *_: None)
        waiting = await lab.cluster.submit(lab.gang())
    await lab.__aexit__()
    async with Lab(tmp_path, api.url) as again:
        await pods(api, 2)
        await eventually(lambda: again.cluster.is_placed(placed) and again.cluster.is_placed(waiting))
        api.remove("/api/v1/namespaces/turnout/pods", pod_of(api, placed)["metadata"]["name"])
        job = await again.listed(placed, lambda job: job.phase is Phase.ENDED)
        assert (job.end, job.why) == (EndKind.CANCELLED, DELETED)
    await lab.__aenter__()


async def test_a_gang_that_is_not_placed_gives_its_places_back(api: FakeApi, tmp_path: Path):
    async with Lab(tmp_path, api.url, gang_seconds=0.4) as lab:
        first = await lab.cluster.submit(lab.gang(2))
        second = await lab.cluster.submit(lab.gang(2))
        await pods(api, 2)
        api.update(pod_of(api, first), node="node1")
        assert not lab.cluster.is_placed(first)
        await lab.listed(second, lambda job: job.why == TURN)
        await lab.listed(
            first, lambda job: "1 of 2 replicas had a node for 0.4 s, and gave it back" in job.why
        )
        await eventually(
            lambda: any(pod["metadata"]["labels"]["turnout/gang"] == second for pod in api.all("pods"))
        )
        for replica in ("master-0", "worker-0"):
            api.update(pod_of(api, second, replica), RUNNING, "node1")
        await eventually(lambda: lab.cluster.is_placed(second))
        await eventually(lambda: len(api.all("pods")) == 4)
        for replica in ("master-0", "worker-0"):
            api.update(pod_of(api, first, replica), RUNNING, "node1")
        await eventually(lambda: lab.cluster.is_placed(first))
        assert lab.jobs[first].end is None


async def test_a_pod_that_stays_on_a_lost_node_keeps_no_other_gang_from_its_turn(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(placement, "GOING_SECONDS", 0.3)
    async with Lab(tmp_path, api.url, gang_seconds=0.4) as lab:
        first = await lab.cluster.submit(lab.gang(2))
        second = await lab.cluster.submit(lab.gang(2))
        await pods(api, 2)
        lost = pod_of(api, first)
        api.keeps.add(lost["metadata"]["name"])
        api.update(lost, node="lost")

        def place(handle: str) -> bool:
            for pod in api.all("pods"):
                if pod["metadata"]["labels"]["turnout/gang"] == handle:
                    api.update(pod, RUNNING, "node1")
            return lab.cluster.is_placed(handle)

        await eventually(lambda: place(second))
        await lab.listed(first, lambda job: "was deleted and is still there" in job.why)
        api.keeps.clear()
        api.remove("/api/v1/namespaces/turnout/pods", lost["metadata"]["name"])
        await eventually(lambda: place(first))


def test_a_late_watch_does_not_count_the_node_of_a_pod_that_was_taken_back():
    def pod(uid: str, node: str = "") -> dict[str, Any]:
        labels = {REPLICA: str(MASTER)}
        return {"metadata": {"name": "p", "uid": uid, "labels": labels}, "spec": {"nodeName": node}}

    gang = PlacedGang("handle", "name")
    gang.take_made(pod("first"))
    gang.take(pod("first", "node1"))
    assert gang.made_states()[MASTER].node == "node1"
    gang.clear()
    gang.take(pod("first", "node1"))
    gang.take_made(pod("second"))
    assert gang.made_states()[MASTER].node == ""
    gang.take(pod("first", "node1"))
    assert gang.made_states() == {}
    gang.take(pod("second", "node2"))
    assert gang.made_states()[MASTER].node == "node2"


async def test_a_gang_that_a_scheduler_of_the_cluster_places(api: FakeApi, tmp_path: Path):
    api.groups.append("scheduling.volcano.sh")
    async with Lab(tmp_path, api.url) as lab:
        handle = await lab.cluster.submit(lab.gang(2))
        await pods(api, 2)
        await eventually(lambda: lab.cluster.is_placed(handle))
        [group] = api.objects["/apis/scheduling.volcano.sh/v1beta1/namespaces/turnout/podgroups"].values()
        assert (group["metadata"]["name"], group["spec"]) == (handle, {"minMember": 2})
        assert group["metadata"]["ownerReferences"][0]["kind"] == "ConfigMap"


async def test_a_quota_makes_it_wait_and_a_refusal_ends_it(lab: Lab, api: FakeApi):
    quota = 'pods "x" is forbidden: exceeded quota: one, requested: pods=1, used: pods=1, limited: pods=1'
    api.refuses["pods"] = FORBIDDEN | {"message": quota}
    handle = await lab.cluster.submit(lab.gang())
    job = await lab.listed(handle, lambda job: "quota of the namespace is used up" in job.why)
    assert job.phase is Phase.PENDING
    api.refuses.clear()
    await pods(api, 1)
    api.refuses["pods"] = FORBIDDEN | {
        "message": 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'
    }
    handle = await lab.cluster.submit(lab.gang())
    job = await lab.listed(handle, lambda job: job.phase is Phase.ENDED)
    assert (job.end, job.why.partition(":")[0]) == (EndKind.FAILED, "Kubernetes refused its pod")


async def test_a_right_that_is_missing_makes_it_wait(lab: Lab, api: FakeApi):
    words = (
        'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "turnout"'
    )
    api.refuses["pods"] = FORBIDDEN | {"message": words}
    handle = await lab.cluster.submit(lab.gang())
    job = await lab.listed(handle, lambda job: "a right is missing" in job.why)
    assert job.phase is Phase.PENDING
    api.refuses["configmaps"] = FORBIDDEN | {"message": words.replace("pods", "configmaps")}
    with pytest.raises(Unreachable, match="cannot create resource"):
        await lab.cluster.submit(lab.gang())


async def test_a_list_that_is_forbidden_is_trouble_of_the_cluster(lab: Lab, api: FakeApi):
    api.refuses_lists["pods"] = FORBIDDEN | {"message": 'User "u" cannot list resource "pods"'}
    with pytest.raises(Unreachable, match="cannot list resource"):
        await anext(lab.cluster.watch())


async def test_objects_of_others_are_not_listed(lab: Lab, api: FakeApi, tmp_path: Path):
    (tmp_path / "other").mkdir()
    async with Lab(tmp_path / "other", api.url) as other:
        handle = await other.cluster.submit(other.gang())
        await other.listed(handle, lambda job: True)
        mine = await lab.cluster.submit(lab.gang())
        await lab.listed(mine, lambda job: True)
        assert set(lab.jobs) == {mine}


async def test_what_a_runner_printed_that_never_spoke(lab: Lab, api: FakeApi):
    handle = await lab.cluster.submit(lab.gang())
    [pod] = await pods(api, 1)
    ended = {"exitCode": 1, "reason": "Error", "message": "turnout runner: no token\n"}
    status = {"phase": "Failed", "containerStatuses": [{"name": "program", "state": {"terminated": ended}}]}
    api.update(pod, status, "node1")
    await lab.listed(handle, lambda job: job.phase is Phase.ENDED)
    assert await lab.cluster.last_words(handle, MASTER) == "turnout runner: no token"
    assert await lab.cluster.last_words("unknown", MASTER) == ""


async def test_an_api_server_that_is_not_there(tmp_path: Path):
    async with Lab(tmp_path, "http://127.0.0.1:9") as lab:
        for call in (lab.cluster.submit(lab.gang()), lab.cluster.look("x"), lab.cluster.cancel("x")):
            with pytest.raises(Unreachable, match=r"the API server 127\.0\.0\.1:9 cannot be reached"):
                await call
