"""The volumes of a pod, and where the program finds them: mounts and scratch directories are at their exact targets.

Directories of the pod are volumes of their own wherever that is possible. For a part of a volume (`subPath`) a node has
to run `mount` twice and `umount` once.
"""

from typing import Any

from turnout.clusters import VOLUMES
from turnout.engines.kubernetes.settings import KubernetesSettings
from turnout.job import Launch, Mount, Role
from turnout.runner.node_plan import COPIES
from turnout.runner.plan import WORKSPACE
from turnout.runner.targets import SHIMS, Bind, scratch_paths

Document = dict[str, Any]

HOME, RUNNER, PYTHON = "/turnout/home", "/turnout/runner", "/turnout/python"
_PARENTS = "/turnout/parents"


class PodVolumes:
    def __init__(self, launch: Launch, role: Role, settings: KubernetesSettings, config_map: str) -> None:
        """`config_map`: the one that has the runner."""
        self.volumes: list[Document] = []
        self.mounts: list[Document] = []
        self._add("home", {"emptyDir": {}}, HOME)
        self._add("work", {"emptyDir": {}}, f"{HOME}/space/work", WORKSPACE)
        self._add("tmp", {"emptyDir": {}}, f"{HOME}/space/tmp", "/tmp")
        self._add("shims", {"emptyDir": {}}, f"{HOME}/shims", SHIMS)
        self._add("shm", {"emptyDir": _shared_memory(role)}, "/dev/shm")
        runner = {"name": config_map, "items": [{"key": "runner.pyz", "path": "runner.pyz"}]}
        self._add("runner", {"configMap": runner}, RUNNER, read_only=True)
        self._add_scratch(launch)
        for number, claim in enumerate(settings.volumes.values()):
            source = {"persistentVolumeClaim": {"claimName": claim}}
            self._add(_claim_volume(number), source, f"{VOLUMES}/{number}")
        self._show_mounts(launch.spec.mounts, settings)
        if settings.runner_image:
            self._add("python", {"emptyDir": {}}, PYTHON, read_only=True)

    def _add(self, name: str, source: Document, *paths: str, read_only: bool = False) -> None:
        self.volumes.append({"name": name, **source})
        for path in paths:
            self._show(name, path, read_only=read_only)

    def _show(self, name: str, path: str, part: str = "", read_only: bool = False) -> None:
        shown: Document = {"name": name, "mountPath": path}
        shown |= {"subPath": part} if part else {}
        self.mounts.append(shown | ({"readOnly": True} if read_only else {}))

    def _add_scratch(self, launch: Launch) -> None:
        mounts = launch.spec.mounts
        scratch = scratch_paths(
            launch.spec.scratch, [Bind("", (), mount.target, mount.read_only) for mount in mounts]
        )
        for number, path in enumerate(scratch):
            self._add(_scratch_volume(number), {"emptyDir": {}}, f"{HOME}/space/scratch/{number}", path)
        targets = [*scratch, *(mount.target for mount in mounts)]
        for number, (outer, inner) in enumerate(_inner_parents(scratch, targets)):
            self._show(_scratch_volume(outer), f"{_PARENTS}/{number}", inner)

    def _show_mounts(self, mounts: tuple[Mount, ...], settings: KubernetesSettings) -> None:
        has_copies = False
        for number, mount in enumerate(mounts):
            target = mount.target.rstrip("/")
            claimed = _claim(mount, settings)
            if claimed:
                self._show(claimed[0], target, claimed[1], mount.read_only)
                continue
            # They stay in the home directory: an object that was fetched is renamed into its place.
            if not has_copies:
                # Only the last directory of a path is made with the rights of the volume, so the parent comes first.
                self._show("home", f"{_PARENTS}/{COPIES}", COPIES)
                has_copies = True
            self._show("home", target, f"{COPIES}/{number}", mount.read_only)


def _shared_memory(role: Role) -> Document:
    limit = {"sizeLimit": str(role.resources.memory)} if role.resources.memory else {}
    return {"medium": "Memory", **limit}


def _inner_parents(scratch: list[str], targets: list[str]) -> list[tuple[int, str]]:
    """Directories within scratch directories on the way to mounts, outer ones first, each with the number of its
    scratch directory.

    The container runtime would make them as root, and the program could write nothing beside the mounts.
    """
    found: dict[tuple[int, str], None] = {}
    for target in targets:
        outer = max((path for path in scratch if target.startswith(f"{path}/")), key=len, default=None)
        if outer is not None:
            *names, _ = target[len(outer) :].strip("/").split("/")
            for count in range(1, len(names) + 1):
                found[scratch.index(outer), "/".join(names[:count])] = None
    return list(found)


def _claim(mount: Mount, settings: KubernetesSettings) -> tuple[str, str] | None:
    """The volume that a mount's source is in, and the path in it."""
    source = mount.source.rstrip("/")
    for number, beginning in enumerate(settings.volumes):
        start = beginning.rstrip("/")
        if source == start or source.startswith(f"{start}/"):
            return _claim_volume(number), source[len(start) :].strip("/")
    return None


def _claim_volume(number: int) -> str:
    return f"volume-{number}"


def _scratch_volume(number: int) -> str:
    return f"scratch-{number}"
