"""The documents that a gang becomes."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnout.engines.kubernetes import KubernetesSettings, gang_schedulers
from turnout.engines.kubernetes.manifest import manifest, rights
from turnout.engines.kubernetes.objects import (
    GangObjects,
    check_pod,
    gang_objects,
    handle_of,
    refusal,
    root,
    service_name,
)
from turnout.engines.kubernetes.runner_map import packed, runner_map
from turnout.engines.remote import Gang, RunnerCall
from turnout.job import Attempt, Launch, Mount, Policy, Program, ReplicaName, Resources, Role, Spec
from turnout.runner import archive

GIB = 1 << 30
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}


def role(name: str = "worker", replicas: int = 1, leads: bool = True, **details: Any) -> Role:
    program = Program(("true",), image="jobs/own:1")
    return Role(name, program, replicas, Resources.of(2, 4 * GIB, 1), leads=leads, **details)


def gang(
    *roles: Role,
    mounts: tuple[Mount, ...] = (),
    scratch: tuple[str, ...] = (),
    path: str = "",
    dialect: str = "tia",
) -> Gang:
    spec = Spec(roles or (role(),), mounts=mounts, scratch=scratch, policy=Policy(grace=20))
    attempt = Attempt(1786000000000000000, 2)
    runner = RunnerCall("https://turnout:8470", "cls", "the-token", "ab" * 32, path, "digest")
    return Gang(f"turnout-{attempt}", Launch(attempt, "default", dialect, "my-job", spec), runner)


def made(one: Gang, scheduler: str = "", **settings: Any) -> GangObjects:
    chosen = next((known for known in gang_schedulers.KNOWN if known.name == scheduler), None)
    return gang_objects(one, KubernetesSettings({}, namespace="ml", **settings), "me", "runner-1", chosen)


def pod(one: Gang, **settings: Any) -> dict[str, Any]:
    objects = made(one, **settings)
    return objects.pod(objects.all_members()[0], OWNER)


def test_a_pod_is_found_by_its_labels_and_goes_with_its_owner():
    one = pod(gang())
    assert one["metadata"]["name"] == "turnout-1786000000000000000-2-worker-0"
    assert one["metadata"]["ownerReferences"] == [OWNER]
    assert one["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "turnout",
        "app.kubernetes.io/name": "my-job",
        "turnout/owner": "me",
        "turnout/gang": "turnout-1786000000000000000-2",
        "turnout/job": "1786000000000000000",
        "turnout/attempt": "2",
        "turnout/project": "default",
        "turnout/role": "worker",
        "turnout/replica": "worker-0",
    }


VOLUME_KINDS = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


def violations(spec: dict[str, Any]) -> list[str]:
    """Of the Pod Security Standard `restricted`, with everything that `baseline` forbids."""
    shared = spec["securityContext"]
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    found += [f"volume {one}" for one in spec.get("volumes") or () if not set(one) - {"name"} <= VOLUME_KINDS]
    found += [
        name
        for name in ("sysctls", "windowsOptions", "seLinuxOptions", "appArmorProfile")
        if shared.get(name)
    ]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        own = container["securityContext"]
        merged = {**shared, **own}
        rules = {
            "privileged": not own.get("privileged"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities.drop": "ALL" in own["capabilities"]["drop"],
            "capabilities.add": set(own["capabilities"].get("add", ())) <= {"NET_BIND_SERVICE"},
            "runAsNonRoot": merged.get("runAsNonRoot") is True,
            "runAsUser": merged.get("runAsUser") != 0,
            "seccompProfile": merged["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost"),
            "procMount": own.get("procMount", "Default") == "Default",
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", ())),
            "options": not {"seLinuxOptions", "appArmorProfile", "windowsOptions"} & set(own),
            "probes": not {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} & set(container),
        }
        found += [f"{container['name']}: {name}" for name, kept in rules.items() if not kept]
    return found


@pytest.mark.parametrize("runner_image", ["", "python:3.12"])
@pytest.mark.parametrize("user", [None, 0, 2000])
def test_a_restricted_namespace_accepts_it(runner_image: str, user: int | None):
    program = Program(("true",), image="jobs/own:1", user=user)
    roles = Role("master", program, leads=True), Role("worker", program, 2, Resources.of(2, GIB, 1))
    mounts = (Mount("obs://b/in", "/in", read_only=True), Mount("nfs://10.0.0.9/data/a", "/data"))
    settings: dict[str, Any] = {"runner_image": runner_image, "volumes": {"nfs://10.0.0.9/data": "claim"}}
    objects = made(gang(*roles, mounts=mounts, scratch=("/cache",)), **settings)
    for member in objects.all_members():
        spec = objects.pod(member, OWNER)["spec"]
        assert violations(spec) == []
        assert spec["securityContext"]["runAsUser"] == (user or 1000)
        assert spec["automountServiceAccountToken"] is False
    assert violations(check_pod(KubernetesSettings({}, **settings), "i", ["-V"])["spec"]) == []


def test_a_pod_as_root_is_one_that_a_restricted_namespace_refuses():
    assert violations(pod(gang(), run_as_user=0)["spec"]) == ["program: runAsNonRoot"]


def test_the_image_may_decide_on_the_user():
    assert pod(gang(), run_as_user=0)["spec"]["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"}
    }


def test_resources_are_requests_and_limits():
    [container] = pod(gang())["spec"]["containers"]
    limits = {"cpu": "2000m", "memory": str(4 * GIB), "nvidia.com/gpu": "1"}
    assert container["resources"] == {"limits": limits, "requests": limits}
    [container] = pod(gang(), gpu_resource="amd.com/gpu")["spec"]["containers"]
    assert container["resources"]["limits"]["amd.com/gpu"] == "1"


def test_the_token_is_in_no_document_but_the_secret():
    assert "the-token" not in str(pod(gang()))
    [container] = pod(gang())["spec"]["containers"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {
        "name": "turnout-1786000000000000000-2", "key": "token",
    }  # fmt: skip
    assert container["command"] == [
        "python3", "-IBS", "/turnout/runner/runner.pyz", "https://turnout:8470", "cls/1786000000000000000.2/worker-0",
    ]  # fmt: skip


def test_images_of_the_settings_and_of_the_job():
    def image(**settings: Any) -> str:
        return pod(gang(), **settings)["spec"]["containers"][0]["image"]

    assert image(image="default:1") == "jobs/own:1"
    assert image(images={"": "mapped:1"}) == "mapped:1"
    bare = Role("worker", Program(("true",), runtime="tia-1.7.0"), leads=True)
    assert pod(gang(bare), image="default:1")["spec"]["containers"][0]["image"] == "default:1"
    assert "names no image" in refusal(gang(bare).launch, KubernetesSettings({}), "cls")


def test_mounts_are_at_their_exact_targets():
    mounts = (
        Mount("obs://b/in", "/home/ma-user/in/", read_only=True),
        Mount("nfs://10.0.0.9/data/sets/a", "/data"),
    )
    spec = pod(gang(mounts=mounts, scratch=("/cache",)), volumes={"nfs://10.0.0.9/data/": "claim"})["spec"]
    shown = {one["mountPath"]: one for one in spec["containers"][0]["volumeMounts"]}
    assert shown["/home/ma-user/in"] == {
        "name": "home", "subPath": "copies/0", "mountPath": "/home/ma-user/in", "readOnly": True,
    }  # fmt: skip
    assert shown["/data"] == {"name": "volume-0", "mountPath": "/data", "subPath": "sets/a"}
    assert shown["/cache"]["name"] == shown["/turnout/home/space/scratch/0"]["name"] == "scratch-0"
    assert {"/workspace", "/tmp", "/dev/shm", "/turnout/volumes/0"} <= set(shown)
    claims = [one["persistentVolumeClaim"] for one in spec["volumes"] if "persistentVolumeClaim" in one]
    assert claims == [{"claimName": "claim"}]


def test_directories_above_mounts_in_a_scratch_directory_belong_to_the_program():
    mounts = (
        Mount("obs://b/in", "/home/u/job/in/0/"),
        Mount("obs://b/out", "/home/u/job/out"),
        Mount("obs://b/x", "/x/y"),
    )
    spec = pod(gang(mounts=mounts, scratch=("/home/u", "/cache")))["spec"]
    parts = [(one["name"], one.get("subPath", "")) for one in spec["containers"][0]["volumeMounts"]]
    inner = [part for name, part in parts if name == "scratch-1" and part]
    assert inner == ["job", "job/in"]
    assert parts.index(("scratch-1", inner[-1])) < parts.index(("home", "copies/0"))


def test_a_job_without_mounts_needs_no_part_of_a_volume():
    """A node runs `mount` and `umount` for each of them."""
    mounts = pod(gang(scratch=("/cache",)))["spec"]["containers"][0]["volumeMounts"]
    assert not any("subPath" in one for one in mounts)


def test_nodes_are_chosen_by_accelerator_and_machine():
    selectors = {"*": {"pool": "ml"}, "n1-standard-8": {"size": "8"}, "NVIDIA_TESLA_A100": {"gpu": "a100"}}
    chosen = role(machine="n1-standard-8", accelerator="NVIDIA_TESLA_A100")
    assert pod(gang(chosen), node_selectors=selectors)["spec"]["nodeSelector"] == {
        "pool": "ml", "size": "8", "gpu": "a100",
    }  # fmt: skip
    assert "nodeSelector" not in pod(gang(role(machine="n1-standard-8")))["spec"]


def test_each_member_has_a_pod_and_a_host_name():
    roles = role("master"), role("worker", 2, leads=False)
    objects = made(gang(*roles), names="always")
    assert [(one.replica, one.pod[-8:]) for one in objects.all_members()] == [
        (ReplicaName("master", 0), "master-0"),
        (ReplicaName("worker", 0), "worker-0"),
        (ReplicaName("worker", 1), "worker-1"),
    ]
    last = objects.pod(objects.all_members()[2], OWNER)
    assert last["spec"]["subdomain"] == objects.handle
    assert last["spec"]["dnsConfig"] == {"searches": [f"{objects.handle}.ml.svc.cluster.local"]}
    assert last["spec"]["containers"][0]["command"][-1].endswith("/worker-1")
    objects = made(gang(*roles))
    alone = objects.pod(objects.all_members()[2], OWNER)["spec"]
    assert alone["hostname"] == last["spec"]["hostname"]
    assert not {"subdomain", "dnsConfig"} & set(alone)


@pytest.mark.parametrize(
    ("dialect", "replicas", "names", "wanted"),
    [
        ("modelarts", 2, "auto", "modelarts-job-"),
        ("vertex", 2, "auto", "turnout-1786000000000000000-2"),
        ("tia", 2, "auto", ""),
        ("tia", 2, "always", "turnout-1786000000000000000-2"),
        ("modelarts", 1, "auto", ""),
        ("modelarts", 2, "never", ""),
    ],
)
def test_replicas_find_each_other_by_name_where_their_cloud_promises_it(
    dialect: str, replicas: int, names: str, wanted: str
):
    one = gang(role(replicas=replicas), dialect=dialect)
    settings = KubernetesSettings({}, namespace="ml", names=names)
    found = service_name(one.launch, settings, handle_of(one.name))
    assert found.startswith(wanted)
    assert bool(found) is bool(wanted)
    spec = pod(one, names=names)["spec"]
    assert spec.get("subdomain", "") == found
    if dialect == "modelarts" and found:
        # A program may build the name of another replica: <MA_VJ_NAME>-worker-0.<MA_VJ_NAME>
        assert spec["hostname"] == f"{found}-worker-0"


@pytest.mark.parametrize(
    ("scheduler", "group", "marks"),
    [
        ("", None, {}),
        (
            "volcano",
            {"minMember": 2, "queue": "q"},
            {"annotations": {"scheduling.k8s.io/group-name": "turnout-1786000000000000000-2"}},
        ),
        (
            "coscheduling",
            {"minMember": 2, "scheduleTimeoutSeconds": 600},
            {"labels": {"scheduling.x-k8s.io/pod-group": "turnout-1786000000000000000-2"}},
        ),
        (
            "kueue",
            None,
            {
                "labels": {"kueue.x-k8s.io/queue-name": "q"},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
            },
        ),
    ],
)
def test_schedulers_of_gangs(scheduler: str, group: Any, marks: dict[str, dict[str, str]]):
    objects = made(gang(role(replicas=2)), scheduler, queue="q")
    assert (objects.group["spec"] if objects.group else None) == group
    found = objects.pod(objects.all_members()[1], OWNER)
    for kind, values in marks.items():
        assert values.items() <= found["metadata"][kind].items()
    assert found["spec"].get("schedulerName") == ("volcano" if scheduler == "volcano" else None)
    assert made(gang(), scheduler, queue="q").group is None


def test_the_scheduler_of_gangs_is_chosen_by_what_the_cluster_has():
    def chosen(*groups: str, **settings: Any) -> str:
        found = gang_schedulers.choose(set(groups), KubernetesSettings({}, **settings))
        return found.name if found else ""

    assert chosen("apps") == ""
    assert chosen("scheduling.volcano.sh", "kueue.x-k8s.io") == "volcano"
    assert chosen("scheduling.volcano.sh", "kueue.x-k8s.io", queue="q") == "kueue"
    assert chosen("scheduling.volcano.sh", gang="turnout") == ""
    assert chosen(gang="coscheduling") == "coscheduling"


def test_names_that_cannot_be_pods():
    settings = KubernetesSettings({}, image="i")
    assert handle_of("turnout-17.1") == "turnout-17-1"
    assert refusal(gang(role("Worker_1")).launch, settings, "cls") == ""
    assert "cannot be the name of a role" in refusal(gang(role("wörker")).launch, settings, "cls")
    twice = gang(role("a_b"), role("a-b", leads=False)).launch
    assert "cannot be the name of a role" in refusal(twice, settings, "cls")


def test_all_gangs_share_the_configmap_of_the_runner(tmp_path: Path):
    path, _ = archive.build(tmp_path)
    shared = runner_map(str(path), "me")
    with zipfile.ZipFile(io.BytesIO(packed(str(path)))) as runner, zipfile.ZipFile(path) as original:
        sources = [name for name in runner.namelist() if not name.endswith(".pyc")]
        assert sources == original.namelist()
        assert runner.testzip() is None
    assert len(str(shared)) < 600_000, "a ConfigMap may have a megabyte"
    assert packed(str(path)) == packed(str(path)), "the name says what is in it"
    one = gang(path=str(path))
    document = root(made(one), one, "me")
    assert len(str(document)) < 6_000
    assert document["metadata"]["annotations"]["turnout/name"] == one.name
    assert document["metadata"]["labels"]["turnout/runner"] == "runner-1"
    [volume] = [each for each in pod(one)["spec"]["volumes"] if "configMap" in each]
    assert volume["configMap"]["name"] == "runner-1"


@pytest.mark.parametrize("kind", [".py", ".pyc"])
def test_the_runner_starts_from_its_sources_and_as_it_was_compiled(tmp_path: Path, kind: str):
    path, _ = archive.build(tmp_path)
    with (
        zipfile.ZipFile(io.BytesIO(packed(str(path)))) as runner,
        zipfile.ZipFile(tmp_path / "one.pyz", "w") as one,
    ):
        for name in runner.namelist():
            if name.endswith(kind):
                one.writestr(name, runner.read(name))
    command = [sys.executable, str(tmp_path / "one.pyz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("turnout runner: "), done.stderr


def test_the_manifest_has_the_rights_and_no_more():
    text = manifest(KubernetesSettings({}, namespace="ml", gang="turnout"))
    kinds = [document["kind"] for document in yaml.safe_load_all(text)]
    assert kinds == ["Namespace", "ServiceAccount", "Role", "RoleBinding"]
    found = {right.resource: right.verbs for right in rights(KubernetesSettings({}, gang="turnout"))}
    assert found["secrets"] == ("create",)
    assert set(found) == {"pods", "configmaps", "secrets", "events", "services"}
    nameless = rights(KubernetesSettings({}, gang="turnout", names="never"))
    assert set(found) - {right.resource for right in nameless} == {"services"}
    assert "*" not in str(found)
