"""`[clusters.X]` with `engine = "kubernetes"`."""

from typing import Any

import msgspec
import pytest

from turnout.clusters import Cluster, RunnerSettings, check
from turnout.engines.kubernetes import KubernetesSettings
from turnout.errors import Misconfigured


def cluster(**settings: Any) -> Cluster:
    return msgspec.convert({"engine": "kubernetes", **settings}, Cluster)


def test_every_setting_reaches_the_cluster():
    given = {
        "kubeconfig": "/etc/k", "context": "c", "namespace": "n", "service_account": "s", "gang": "volcano",
        "queue": "q", "scheduler": "x", "gang_seconds": 5, "node_selectors": {"*": {"a": "b"}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}], "priority_class": "p", "image": "i",
        "images": {"r": "j"}, "image_pull_policy": "Never", "image_pull_secrets": ["z"], "runner_image": "y",
        "volumes": {"nfs://h/d/": "claim"}, "run_as_user": 0, "gpu_resource": "amd.com/gpu",
        "names": "always", "cluster_domain": "example", "python": "/opt/python3",
    }  # fmt: skip
    check({"cls": cluster(**given)}, RunnerSettings())
    found = KubernetesSettings.of(cluster(**given), {"HOME": "/h"})._asdict()
    assert found.pop("environment") == {"HOME": "/h"}
    assert {
        name: list(value) if isinstance(value, tuple) else value for name, value in found.items()
    } == given
    assert cluster(**given).volume_directories() == {"nfs://h/d": "/turnout/volumes/0"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"gang": "magic"},
            "gang = 'magic' is not known; there are auto, turnout, kueue, volcano, coscheduling",
        ),
        ({"gang": "kueue"}, "gang = 'kueue' needs queue"),
        ({"names": "yes"}, "names = 'yes' is not known; there are auto, always, never"),
        ({"image_pull_policy": "Often"}, "there are Always, IfNotPresent, Never"),
        ({"run_as_user": -1}, "run_as_user must be a user id"),
        ({"volumes": {"s3://b": "claim"}}, "must begin with nfs:// or file://"),
        ({"shared": ["/data"]}, "shared has no effect with engine = 'kubernetes'; use volumes"),
        ({"partition": "gpu"}, "partition has no effect with engine = 'kubernetes'"),
        ({"engine": "slurm", "namespace": "n"}, "namespace has no effect with engine = 'slurm'"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], message: str):
    with pytest.raises(Misconfigured) as error:
        check({"cls": cluster(**settings)}, RunnerSettings())
    assert message in str(error.value)
