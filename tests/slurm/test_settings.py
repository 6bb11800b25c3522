"""What the settings alone decide."""

from pathlib import Path

import pytest

from tests.slurm.harness import role
from turnout.clusters import Cluster
from turnout.engines import Unreachable
from turnout.engines.slurm import SlurmCluster, SlurmSettings
from turnout.engines.slurm.commands import Commands
from turnout.job import Attempt, Launch, Spec

SETTINGS = SlurmSettings(
    environment={"PATH": "/usr/bin:/bin", "TURNOUT_ROOT_KEY": "secret", "SQUEUE_USERS": "me"}
)


def test_the_settings_of_a_cluster():
    cluster = Cluster(
        engine="slurm", command=["ssh", "login1"], partition="gpu", account="a", qos="q", constraint="c",
        options=["--nice"], time=60, shared=["/lustre"], python="/opt/python3", runner_directory="/lustre/turnout",
    )  # fmt: skip
    assert SlurmSettings.of(cluster, {"A": "b"}) == SlurmSettings(
        {"A": "b"}, ("ssh", "login1"), "gpu", "a", "q", "c", ("--nice",), 60, ("/lustre",), "/opt/python3",
        "/lustre/turnout",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "shared"), [("/lustre", True), ("/lustre/a", True), ("/lustre2", False), ("/", False)]
)
def test_what_the_nodes_see_too(path: str, shared: bool):
    assert SETTINGS._replace(shared=("/lustre/",)).is_shared(path) == shared


def test_a_role_needs_a_name_that_fits_into_one_of_slurm():
    cluster = SlurmCluster("gpu", SETTINGS, Path("/data"))
    for name, why in (("worker", ""), ("a/b", "'a/b' cannot be the name of a role on cluster gpu")):
        spec = Spec((role(name),))
        assert cluster.refuses(Launch(Attempt(1, 1), "project", "native", "job", spec)) == why


async def test_commands_get_neither_secrets_nor_options_from_the_environment():
    answer = await Commands(SETTINGS).run("env")
    assert "PATH=/usr/bin:/bin" in answer.output
    assert "TURNOUT" not in answer.output
    assert "SQUEUE" not in answer.output


async def test_a_shell_elsewhere_takes_a_command_apart_as_it_was():
    remote = Commands(SETTINGS._replace(command=("sh", "-c", 'exec sh -c "$*"', "ssh")))
    words = ["a b", "it's", "$HOME", "x\x1fy", "", "*"]
    answer = await remote.run("printf", "%s\n", *words)
    assert answer.output.split("\n")[:-1] == words


async def test_a_command_gets_its_input_and_may_ignore_it():
    commands = Commands(SETTINGS)
    assert (await commands.run("cat", stdin="the script")).output == "the script"
    for _ in range(20):
        assert (await commands.run("true", stdin="x" * 100_000)).ok


async def test_a_command_that_hangs_is_ended_with_its_children():
    hanging = Commands(SETTINGS, seconds=0.5)
    with pytest.raises(Unreachable, match=r"sh did not answer within 0\.5 s"):
        await hanging.run("sh", "-c", "sleep 98765 & sleep 98765")
    lines = (await Commands(SETTINGS).run("ps", "-eo", "args")).output.splitlines()
    assert "sleep 98765" not in lines
