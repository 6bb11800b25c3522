"""The data files: every runtime and every tier that TI-A's pages name."""

import pytest

from turnout.dialects.tia import catalogue, machine_type
from turnout.job import Resources
from turnout.job.resources import GIB

VERSIONS = ("1.4.0", "1.5.0", "1.6.0", "1.7.0")
SUFFIXES = ("", "-py3", "-gpu", "-gpu-py3")


@pytest.mark.parametrize("family", ["tf", "tia"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_runtimes_of_the_first_page(family: str, version: str, suffix: str):
    runtime = catalogue.runtimes()[f"{family}-{version}{suffix}"]
    assert f"TensorFlow {version}" in runtime.wants
    assert ("Python 3" in runtime.wants) == suffix.endswith("py3")
    assert ("GPU" in runtime.wants) == ("gpu" in suffix)
    assert runtime.family.cos == (family == "tia")


def test_the_other_runtimes_and_their_rules():
    families = {name: runtime.family for name, runtime in catalogue.runtimes().items()}
    assert families["tfplus-1.6.0-gpu"].min_gpus == 1
    assert not families["tfplus-1.6.0-gpu"].ps
    assert not families["tfplus-1.6.0-gpu"].cos
    assert families["tia-spark-2.4.0"].spark
    assert families["tiaserv-1.6.0-cpu"].not_for_jobs
    assert families["tiaserv-1.6.0-gpu"].not_for_jobs
    assert {"tf-1.8.0", "tia-1.8.0-gpu-py3"} <= set(families)


@pytest.mark.parametrize("kind", ["", "_GPU", "_DIST", "_GPU_DIST"])
@pytest.mark.parametrize(
    ("size", "workers", "ps"), [("BASIC", 2, 1), ("SMALL", 2, 1), ("MIDDLE", 4, 2), ("LARGE", 8, 4)]
)
def test_the_sixteen_presets(size: str, workers: int, ps: int, kind: str):
    tier = catalogue.tiers()[size + kind]
    master = machine_type.parse(tier.master, "master")
    assert (master.gpus > 0) == ("GPU" in kind)
    if "DIST" not in kind:
        assert (tier.workers, tier.ps_count, tier.worker, tier.ps) == (0, 0, "", "")
        return
    single = catalogue.tiers()[size + kind.removesuffix("_DIST")]
    assert tier.master == tier.worker == single.master
    assert (tier.workers, tier.ps_count) == (workers, ps)
    half = Resources.of(
        cores=(master.millicores // 1000 + 1) // 2, memory=(master.memory // GIB + 1) // 2 * GIB
    )
    assert machine_type.parse(tier.ps, "ps") == half


def test_there_is_no_other_preset():
    assert len(catalogue.tiers()) == 16
