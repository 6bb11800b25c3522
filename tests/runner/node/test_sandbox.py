"""What a program sees in the sandbox of a node: everything, and the mounts at their exact targets."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.runner.node.conftest import Start
from tests.runner.node.fake_gateway import Document, FakeGateway
from turnout.runner.node import sandbox
from turnout.runner.node.errors import NotStarted
from turnout.runner.node.plan import Bind

pytestmark = pytest.mark.skipif(not sandbox.find(), reason="bubblewrap does not work here")


def see(binds: list[Bind], script: str) -> str:
    options = sandbox.options(binds, {"PATH": "/usr/bin:/bin", "A": "b"}, "/")
    command = ["bwrap", *options, "--", "sh", "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_text("content\n")
    return str(tmp_path / "source")


def test_the_node_is_shown_as_it_is(source: str, tmp_path: Path):
    everything = "ls -A / | sort; head -c 4 /dev/zero | wc -c; id -u; cat /proc/self/comm"
    here = subprocess.run(["sh", "-c", everything], check=True, capture_output=True, text=True).stdout
    assert see([], everything) == here
    target = tmp_path / "target"
    target.mkdir()
    assert see([Bind(source, str(target), False)], f"{everything}; cat {target}/file") == f"{here}content\n"
    assert not list(target.iterdir())


def test_a_target_below_the_root_is_made(source: str):
    there = {"/turnout-test/deep/er", "/turnout-test-2"}
    binds = [Bind(source, target, True) for target in there]
    before = sorted(os.listdir("/"))
    seen = see(
        binds, "cat /turnout-test/deep/er/file /turnout-test-2/file; ls -A /; readlink /bin; echo x > /tmp/ok"
    )
    lines = seen.split("\n")
    assert lines[:2] == ["content", "content"]
    assert set(lines[2:]) >= {*before, "turnout-test", "turnout-test-2"}
    assert sorted(os.listdir("/")) == before


def test_a_target_beside_existing_files_is_made(source: str, tmp_path: Path):
    parent = tmp_path / "parent"
    (parent / "sub").mkdir(parents=True)
    (parent / "neighbour").write_text("neighbour\n")
    (parent / "link").symlink_to("neighbour")
    target = parent / "a/b"
    script = f"cat {target}/file {parent}/neighbour; readlink {parent}/link; echo x > {parent}/sub/written; ls {parent}"
    seen = see([Bind(source, str(target), False)], script)
    assert seen == "content\nneighbour\nneighbour\na\nlink\nneighbour\nsub\n"
    assert sorted(path.name for path in parent.iterdir()) == ["link", "neighbour", "sub"]
    assert (parent / "sub/written").read_text() == "x\n"


def test_the_way_to_a_target_may_lead_through_a_link(source: str, tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/kept").write_text("kept\n")
    (tmp_path / "data").symlink_to("disk")
    target = tmp_path / "data/new"
    seen = see(
        [Bind(source, str(target), False)], f"cat {target}/file {tmp_path}/data/kept; ls {tmp_path}/disk"
    )
    assert seen == "content\nkept\nkept\n"


def test_a_file_can_be_bound(source: str, tmp_path: Path):
    target = tmp_path / "no/such/file"
    assert see([Bind(f"{source}/file", str(target), True)], f"cat {target}") == "content\n"


def test_a_directory_replaces_a_file(source: str, tmp_path: Path):
    (tmp_path / "target").write_text("a file")
    assert see([Bind(source, str(tmp_path / "target"), True)], f"cat {tmp_path}/target/file") == "content\n"
    assert (tmp_path / "target").read_text() == "a file"


def test_inner_targets_are_shown_in_outer_ones(source: str, tmp_path: Path):
    outer = tmp_path / "outer"
    outer.mkdir()
    # In any order.
    binds = [Bind(source, "/turnout-test/a/b", True), Bind(str(outer), "/turnout-test/a", False)]
    assert see(binds, "cat /turnout-test/a/b/file; ls /turnout-test/a") == "content\nb\n"


def test_a_read_only_bind_cannot_be_written(source: str):
    seen = see([Bind(source, "/turnout-test", True)], "echo x 2>&1 > /turnout-test/file || echo refused")
    assert seen.endswith("refused\n")


def test_too_many_neighbours_are_refused(source: str, tmp_path: Path):
    for number in range(3000):
        (tmp_path / str(number)).touch()
    with pytest.raises(NotStarted, match="too many files"):
        see([Bind(source, str(tmp_path / "a/b"), False)], "true")


def test_a_path_is_found_in_its_bind():
    binds = [Bind("/home/tmp", "/tmp", False), Bind("/home/inner", "/tmp/inner", False)]
    assert sandbox.find_source("/tmp/x", binds) == "/home/tmp/x"
    assert sandbox.find_source("/tmp/inner/x", binds) == "/home/inner/x"
    assert sandbox.find_source("/tmpx", binds) == "/tmpx"


def test_a_program_finds_its_mounts_hosts_and_metrics(gateway: FakeGateway, start_runner: Start, source: str):
    script = "cat /turnout-test/data/file; cat /etc/hosts; echo '{}' > /var/turnout-test/metrics; pwd; echo $A; exit 3"

    def plan(arrival: Document) -> Document:
        home = arrival["home"]
        return {
            "argv": ["sh", "-c", script],
            "env": {"PATH": "/usr/bin:/bin", "A": "ü"},
            "cwd": "/workspace",
            "dirs": ["space/work", "space/tmp", "shims", "space/scratch"],
            "binds": [
                {"source": source, "target": "/turnout-test/data", "read_only": True},
                {"source": f"{home}/space/work", "target": "/workspace", "read_only": False},
                {"source": f"{home}/space/tmp", "target": "/tmp", "read_only": False},
                {"source": f"{home}/space/scratch", "target": "/var/turnout-test", "read_only": False},
            ],
            "hosts": "127.0.0.1 localhost\n10.0.0.7 worker-3\n",
            "metrics_file": "/var/turnout-test/metrics",
        }

    gateway.plan = plan
    runner = start_runner()
    assert runner.finish() == 3
    expected = "content\n127.0.0.1 localhost\n10.0.0.7 worker-3\n/workspace\nü\n"
    assert bytes(gateway.logs[0]).decode() == expected
    assert gateway.files == {"/var/turnout-test/metrics": "{}\n"}
    assert not Path("/turnout-test").exists()
    assert not Path("/var/turnout-test").exists()


def test_a_mount_without_a_source_is_an_error_of_staging(gateway: FakeGateway, start_runner: Start):
    bind = {"source": "/no/such/source", "target": "/turnout-test", "read_only": True}
    gateway.plan = lambda arrival: {"argv": ["true"], "binds": [bind]}
    end = start_runner().wait_for_end()
    assert (end["cause"], end["code"]) == ("staging", None)
    assert "/no/such/source" in end["message"]
