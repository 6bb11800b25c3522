"""The rights that this engine needs, as a manifest for the administrator: namespace, service account, Role, binding."""

from typing import Any, NamedTuple

from turnout.engines.kubernetes.gang_schedulers import KNOWN
from turnout.engines.kubernetes.settings import KubernetesSettings

ACCOUNT = "turnout"
"""The service account of the service, not of its pods."""


class Right(NamedTuple):
    group: str
    resource: str
    verbs: tuple[str, ...]


RIGHTS = (
    Right("", "pods", ("create", "get", "list", "watch", "delete", "deletecollection")),
    Right("", "configmaps", ("create", "get", "list", "patch", "delete")),
    Right("", "secrets", ("create",)),
    Right("", "events", ("list",)),
)


def rights(settings: KubernetesSettings, scheduler: str = "") -> list[Right]:
    """`scheduler`: the one that the cluster has, if it is known."""
    chosen = scheduler or settings.gang
    groups = [one for one in KNOWN if one.path and chosen in (one.name, "auto")]
    names = [Right("", "services", ("create", "get", "delete"))] if settings.names != "never" else []
    return [*RIGHTS, *names, *(Right(one.api, "podgroups", ("create",)) for one in groups)]


def manifest(settings: KubernetesSettings) -> str:
    """In YAML."""
    namespace = settings.namespace or "turnout"
    rules = [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
        for right in rights(settings)
    ]
    here = {"name": ACCOUNT, "namespace": namespace}
    documents: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": here, "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": here,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", **here}],
        },
    ]
    import yaml  # only imported where there is a Kubernetes cluster

    return yaml.safe_dump_all(documents, sort_keys=False)
