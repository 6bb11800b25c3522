"""The Kubernetes objects of a gang. Pure: everything here is a document.

The gang's ConfigMap owns all others, so that deleting it leaves nothing. It has what is needed to make the pods
(again). Each pod is made from the document of its role.
"""

import copy
import re
from typing import Any, NamedTuple

import msgspec

from turnout.engines.kubernetes.gang_schedulers import GangScheduler
from turnout.engines.kubernetes.settings import KubernetesSettings
from turnout.engines.kubernetes.volumes import HOME, PYTHON, RUNNER, PodVolumes
from turnout.engines.remote import Gang, RunnerCall
from turnout.job import Launch, ReplicaName, Role
from turnout.job.conventions import convention

Document = dict[str, Any]

MANAGED_BY = {"app.kubernetes.io/managed-by": "turnout"}
OWNER, GANG, REPLICA = "turnout/owner", "turnout/gang", "turnout/replica"
"""Labels: the service that made it, the gang and the member."""
PART, RUNNER_MAP = "turnout/part", "turnout/runner"
"""Labels of ConfigMaps: of the one that has the runner; of a gang's, which runner its pods have."""
PLACED, REFUSED = "turnout/placed", "turnout/refused"
"""Annotations of the gang's ConfigMap: every pod has its node; it can never be placed, and why."""
NAME = "turnout/name"
"""Annotation: the gang's name in Turnout."""
CONTAINER = "program"
_FLAGS = ("-IBS",)
"""Of Python for the runner: nothing of the image's settings or packages, which also halves the start of Python."""
_DISK = "ephemeral-storage"
_TOKEN = "token"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DELIVERY_SECONDS = 35
"""Time for a runner to report the end, after the program's grace time."""
# The whole installation, without what programs do not need. It finds its modules beside it, but not its library.
_COPY_PYTHON = r"""
import shutil, sys
target = sys.argv[1] + "/installed"
unwanted = shutil.ignore_patterns("__pycache__", "test", "share", "include")
shutil.copytree(sys.base_prefix, target, symlinks=True, ignore=unwanted)
with open(sys.argv[1] + "/start", "w") as file:
    file.write(f'export LD_LIBRARY_PATH="{target}/lib:$LD_LIBRARY_PATH"\nexec {target}/bin/python3 "$@"\n')
"""


class Member(NamedTuple):
    replica: ReplicaName
    pod: str
    """The pod's name."""
    role: int
    """The number of its document."""
    host: str


class GangObjects(msgspec.Struct, frozen=True):
    """What is needed to make the pods of a gang; it is stored in the gang's ConfigMap."""

    name: str
    """`Gang.name`"""
    handle: str
    members: list[tuple[str, str, int, str]]
    pods: list[Document]
    """One for each role."""
    runner_map: str = ""
    """The name of the ConfigMap that has their runner."""
    group: Document | None = None
    """What the gang scheduler wants besides pods."""
    group_path: str = ""

    def all_members(self) -> list[Member]:
        return [Member(ReplicaName.parse(name), pod, role, host) for name, pod, role, host in self.members]

    def pod(self, member: Member, owner: Document) -> Document:
        pod = copy.deepcopy(self.pods[member.role])
        pod["metadata"]["name"] = member.pod
        pod["metadata"]["labels"][REPLICA] = str(member.replica)
        pod["metadata"]["ownerReferences"] = [owner]
        pod["spec"]["hostname"] = member.host
        container = pod["spec"]["containers"][0]
        container["command"] = [*container["command"][:-1], container["command"][-1] + str(member.replica)]
        return pod


def handle_of(name: str) -> str:
    """`turnout-1786000000000000000.1` cannot be the name of a Service."""
    return name.replace(".", "-").lower()


def refusal(launch: Launch, settings: KubernetesSettings, cluster: str) -> str:
    """Why no pods can be made for the gang; empty: they can."""
    names = [_plain(role.name) for role in launch.spec.roles]
    for role, name in zip(launch.spec.roles, names, strict=True):
        if not _LABEL.fullmatch(name) or len(name) > 20 or names.count(name) > 1:
            return f"{role.name!r} cannot be the name of a role on cluster {cluster}"
        if not image_of(role, settings):
            return (
                f"the job names no image, and cluster {cluster} has none for the runtime "
                f"{role.program.runtime or 'of its own'!r}; set [clusters.{cluster}] image or images"
            )
    return ""


def image_of(role: Role, settings: KubernetesSettings) -> str:
    program = role.program
    return settings.images.get(program.runtime) or program.image or settings.image


def gang_objects(
    gang: Gang, settings: KubernetesSettings, owner: str, runner_map: str, scheduler: GangScheduler | None
) -> GangObjects:
    """`owner`: names this service. `runner_map`: the ConfigMap that has the runner. `scheduler`: what places the gang
    as a whole, if anything does."""
    launch, handle = gang.launch, handle_of(gang.name)
    members = _members(launch, handle)
    labels = gang_labels(gang, owner)
    pods = [_pod(gang, role, settings, labels, runner_map) for role in launch.spec.roles]
    group, path = None, ""
    if scheduler and len(members) > 1:
        scheduler.mark(pods, handle, len(members), settings)
        group, path = scheduler.group(handle, len(members), settings), scheduler.path
        if group:
            group["metadata"]["labels"] = labels
    stored = [(str(one.replica), one.pod, one.role, one.host) for one in members]
    return GangObjects(gang.name, handle, stored, pods, runner_map, group, path)


def gang_labels(gang: Gang, owner: str) -> dict[str, str]:
    launch = gang.launch
    found = {
        **MANAGED_BY,
        OWNER: owner,
        GANG: handle_of(gang.name),
        "turnout/job": str(launch.attempt.job),
        "turnout/attempt": str(launch.attempt.number),
        "turnout/project": launch.project,
        "app.kubernetes.io/name": launch.name,
    }
    return {name: value for name, value in found.items() if _LABEL_VALUE.fullmatch(value)}


def root(objects: GangObjects, gang: Gang, owner: str) -> Document:
    """The ConfigMap that owns everything of the gang."""
    return {
        "metadata": {
            "name": objects.handle,
            "labels": {**gang_labels(gang, owner), RUNNER_MAP: objects.runner_map},
            "annotations": {NAME: gang.name, "turnout/job-name": gang.launch.name},
        },
        "immutable": True,
        "data": {"gang.json": msgspec.json.encode(objects).decode()},
    }


def secret(gang: Gang, labels: dict[str, str], owner: Document) -> Document:
    return {
        "metadata": {"name": handle_of(gang.name), "labels": labels, "ownerReferences": [owner]},
        "type": "Opaque",
        "immutable": True,
        "stringData": {_TOKEN: gang.runner.token},
    }


def service_name(launch: Launch, settings: KubernetesSettings, handle: str) -> str:
    """The Service through which the replicas find each other by `<host>` and `<host>.<service>`; empty: none.

    The name is the domain of their cloud, if it has one, so the Service of an earlier attempt may still have it.
    """
    found = convention(launch.dialect)
    wanted = settings.names == "always" or (settings.names == "auto" and found.has_names)
    return (found.domain(launch) or handle) if wanted and len(launch.replicas()) > 1 else ""


def service(name: str, gang: Gang, labels: dict[str, str], owner: Document) -> Document:
    """The Service that gives the pods names, even before they are ready."""
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {GANG: handle_of(gang.name)},
            "ports": [{"name": "any", "port": 1}],  # some versions want one
        },
    }


def owner_reference(root: Document) -> Document:
    meta = root["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}


def _members(launch: Launch, handle: str) -> list[Member]:
    roles = [role.name for role in launch.spec.roles]
    hosts = convention(launch.dialect).host
    found: list[Member] = []
    for name, role in launch.replicas():
        pod = f"{handle}-{_plain(role.name)}-{name.index}"
        host = hosts(launch, name).lower()
        host = host if _LABEL.fullmatch(host) and len(host) < 64 else f"{_plain(role.name)}-{name.index}"
        found.append(Member(name, pod, roles.index(role.name), host))
    return found


def _plain(name: str) -> str:
    return re.sub(r"[._]", "-", name.lower())


def _pod(
    gang: Gang, role: Role, settings: KubernetesSettings, labels: dict[str, str], runner_map: str
) -> Document:
    user = settings.run_as_user and (role.program.user or settings.run_as_user)
    volumes = PodVolumes(gang.launch, role, settings, runner_map)
    spec: Document = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": bool(settings.service_account),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": int(gang.launch.spec.policy.grace) + _DELIVERY_SECONDS,
        "securityContext": _pod_security(user),
        "volumes": volumes.volumes,
        "containers": [_container(gang, role, settings, volumes.mounts)],
    }
    names = service_name(gang.launch, settings, handle_of(gang.name))
    if names:
        spec["subdomain"] = names
        domain = f"{names}.{settings.namespace}.svc.{settings.cluster_domain}"
        spec["dnsConfig"] = {"searches": [domain]}
    if settings.runner_image:
        spec["initContainers"] = [_python_container(settings)]
    spec |= _placement_fields(settings, role)
    annotations = {NAME: gang.name, "turnout/job-name": gang.launch.name}
    metadata = {"labels": {**labels, "turnout/role": role.name}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _placement_fields(settings: KubernetesSettings, role: Role | None = None) -> Document:
    given = {
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "schedulerName": settings.scheduler,
        "nodeSelector": _node_selector(role, settings),
        "tolerations": [dict(one) for one in settings.tolerations],
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
    }
    return {name: value for name, value in given.items() if value}


def _container(gang: Gang, role: Role, settings: KubernetesSettings, mounts: list[Document]) -> Document:
    runner = gang.runner
    python = ["/bin/sh", f"{PYTHON}/start"] if settings.runner_image else [settings.python]
    found: Document = {
        "name": CONTAINER,
        "image": image_of(role, settings),
        # The name of the replica is added to the last.
        "command": [*python, *_FLAGS, f"{RUNNER}/runner.pyz", runner.endpoint, _address(runner, gang.launch)],
        "env": _environment(gang),
        "resources": _resources(role, settings),
        "volumeMounts": mounts,
        "securityContext": _security(),
        # What a runner printed that never reached the service.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if settings.image_pull_policy:
        found["imagePullPolicy"] = settings.image_pull_policy
    return found


def _address(runner: RunnerCall, launch: Launch) -> str:
    return f"{runner.cluster}/{launch.attempt}/"


def _environment(gang: Gang) -> list[Document]:
    runner, handle = gang.runner, handle_of(gang.name)
    plain = {
        "TURNOUT_ENGINE_ID": handle,
        "TURNOUT_HOME": HOME,
        "TURNOUT_PATIENCE": f"{runner.patience:g}",
        "TURNOUT_FINGERPRINT": runner.fingerprint,
    }
    return [
        {"name": "TURNOUT_TOKEN", "valueFrom": {"secretKeyRef": {"name": handle, "key": _TOKEN}}},
        {"name": "TURNOUT_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "TURNOUT_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        *({"name": name, "value": value} for name, value in plain.items() if value),
    ]


def _resources(role: Role, settings: KubernetesSettings) -> Document:
    wanted = role.resources
    limits: dict[str, str] = {}
    if wanted.millicores:
        limits["cpu"] = f"{wanted.millicores}m"
    if wanted.memory:
        limits["memory"] = str(wanted.memory)
    if wanted.gpus:
        limits[settings.gpu_resource] = str(wanted.gpus)
    if wanted.disk:
        limits[_DISK] = str(wanted.disk)
    if not limits:
        return {}
    # Most jobs ask for more disk than they use, so it is not reserved.
    reserved = {name: "0" if name == _DISK else value for name, value in limits.items()}
    return {"limits": limits, "requests": reserved}


def _node_selector(role: Role | None, settings: KubernetesSettings) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("*", role.machine, role.accelerator) if role else ("*",):
        found |= settings.node_selectors.get(name, {}) if name else {}
    return found


def _pod_security(user: int) -> Document:
    found: Document = {"seccompProfile": {"type": "RuntimeDefault"}}
    return found | ({"runAsNonRoot": True, "runAsUser": user, "fsGroup": user} if user else {})


def _security() -> Document:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _python_container(settings: KubernetesSettings) -> Document:
    return {
        "name": "python",
        "image": settings.runner_image,
        "command": ["python3", "-c", _COPY_PYTHON, PYTHON],
        "volumeMounts": [{"name": "python", "mountPath": PYTHON}],
        "securityContext": _security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def check_pod(settings: KubernetesSettings, image: str, arguments: list[str]) -> Document:
    """A pod like those of jobs, with a program of its own."""
    python = ["/bin/sh", f"{PYTHON}/start"] if settings.runner_image else [settings.python]
    container: Document = {
        "name": CONTAINER,
        "image": image,
        "command": [*python, *arguments],
        "securityContext": _security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "10m"}},
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    spec: Document = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": _pod_security(settings.run_as_user),
        "containers": [container],
        **_placement_fields(settings),
    }
    if settings.runner_image:
        spec["initContainers"] = [_python_container(settings)]
        spec["volumes"] = [{"name": "python", "emptyDir": {}}]
        container["volumeMounts"] = [{"name": "python", "mountPath": PYTHON}]
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}
