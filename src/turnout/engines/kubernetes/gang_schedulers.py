"""Schedulers that place a gang whole or not at all: how each wants its pods marked. A literal table."""

from typing import Any, NamedTuple

from turnout.engines.kubernetes.settings import KubernetesSettings

Document = dict[str, Any]


class GangScheduler(NamedTuple):
    name: str
    """In the setting `gang`."""
    api: str
    """The API group whose presence says that the cluster has it."""
    path: str = ""
    """Where its groups are made, below the namespace's; empty: it needs none."""
    kind: str = ""
    pod_labels: tuple[tuple[str, str], ...] = ()
    """With `{group}`, `{count}`, `{queue}`."""
    pod_annotations: tuple[tuple[str, str], ...] = ()
    scheduler: str = ""
    """`schedulerName` of the pods, if the settings name none."""
    needs_queue: bool = False

    def mark(self, pods: list[Document], group: str, count: int, settings: KubernetesSettings) -> None:
        values = {"group": group, "count": count, "queue": settings.queue}
        for pod in pods:
            metadata = pod["metadata"]
            metadata["labels"] |= {name: text.format_map(values) for name, text in self.pod_labels}
            metadata["annotations"] |= {name: text.format_map(values) for name, text in self.pod_annotations}
            if self.scheduler and not settings.scheduler:
                pod["spec"]["schedulerName"] = self.scheduler

    def group(self, name: str, count: int, settings: KubernetesSettings) -> Document | None:
        if not self.path:
            return None
        spec: Document = {"minMember": count}
        if self.name == "volcano":
            spec |= {"queue": settings.queue} if settings.queue else {}
            spec |= {"priorityClassName": settings.priority_class} if settings.priority_class else {}
        else:
            spec["scheduleTimeoutSeconds"] = int(settings.gang_seconds)
        return {
            "apiVersion": self.path.rpartition("/")[0],
            "kind": self.kind,
            "metadata": {"name": name},
            "spec": spec,
        }


KNOWN = (
    GangScheduler(
        "kueue",
        "kueue.x-k8s.io",
        pod_labels=(("kueue.x-k8s.io/queue-name", "{queue}"), ("kueue.x-k8s.io/pod-group-name", "{group}")),
        pod_annotations=(("kueue.x-k8s.io/pod-group-total-count", "{count}"),),
        needs_queue=True,
    ),
    GangScheduler(
        "volcano",
        "scheduling.volcano.sh",
        "scheduling.volcano.sh/v1beta1/podgroups",
        "PodGroup",
        pod_annotations=(("scheduling.k8s.io/group-name", "{group}"),),
        scheduler="volcano",
    ),
    GangScheduler(
        "coscheduling",
        "scheduling.x-k8s.io",
        "scheduling.x-k8s.io/v1alpha1/podgroups",
        "PodGroup",
        pod_labels=(("scheduling.x-k8s.io/pod-group", "{group}"),),
    ),
)
NONE = "turnout"
"""The setting for: none of them, Turnout places gangs itself."""
GANGS = ("auto", NONE, *(one.name for one in KNOWN))


def choose(groups: set[str], settings: KubernetesSettings) -> GangScheduler | None:
    """`groups`: the API groups that the cluster has. None: it has no scheduler for gangs that can be used."""
    for one in KNOWN:
        if settings.gang == one.name:
            return one
        usable = one.api in groups and (settings.queue or not one.needs_queue)
        if settings.gang == "auto" and usable:
            return one
    return None
