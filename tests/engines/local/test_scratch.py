"""Scratch directories of a replica, at paths that its cloud promises."""

import os
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, EngineHarness
from turnout.engines import Refused
from turnout.job import Mount

DIRECTORIES = ("/cache", "/home/ma-user")


def open_directory(path: Path) -> Mount:
    path.mkdir()
    path.chmod(0o777)
    return Mount(f"file://{path}", "/home/ma-user/modelarts/inputs/data_url_0")


async def test_a_scratch_directory_is_empty_writable_and_private(harness: EngineHarness):
    program = "import os, sys; print(os.listdir(sys.argv[1])); open(sys.argv[1] + '/x', 'w').write('mine')"
    first = await harness.ended(await harness.python(program, "/cache", scratch=DIRECTORIES))
    assert first.code == 0, harness.output(first.attempt, stream=1)
    again = await harness.ended(await harness.python(program, "/cache", scratch=DIRECTORIES))
    assert harness.output(first.attempt) == harness.output(again.attempt) == "[]\n"
    assert not Path("/cache").exists()


async def test_a_mount_can_be_inside_a_scratch_directory(harness: EngineHarness, base_dir: Path):
    mount = open_directory(base_dir / "input")
    (base_dir / "input" / "data").write_text("42")
    program = "import sys; here = sys.argv[1].split('=')[1]; print(open(here + '/data').read())"
    attempt = await harness.python(
        program, f"--data_url={mount.target}", mounts=(mount,), scratch=DIRECTORIES
    )
    assert (await harness.ended(attempt)).code == 0, harness.output(attempt, stream=1)
    assert harness.output(attempt) == "42\n"


async def test_variables_and_the_working_directory_can_use_a_scratch_directory(harness: EngineHarness):
    attempt = await harness.start(
        "sh",
        "-c",
        'pwd; echo x > "$MINE/x" && ls',
        env={"MINE": "/home/ma-user"},
        working_dir="/home/ma-user",
        scratch=DIRECTORIES,
    )
    assert (await harness.ended(attempt)).code == 0, harness.output(attempt, stream=1)
    where, _, there = harness.output(attempt).partition("\n")
    assert where.endswith("/home/ma-user")
    assert there == "x\n"


@pytest.mark.parametrize("keep", [False, True])
async def test_scratch_directories_are_removed_with_the_workspace(harness: EngineHarness, keep: bool):
    end = await harness.run("sh", "-c", "echo x > $D/x", env={"D": "/cache"}, scratch=DIRECTORIES)
    home = harness.paths.replica(end.attempt, MASTER)
    await harness.engine.forget(end.attempt, keep_workspace=keep)
    # The supervisor handles messages in order.
    await harness.run("true")
    if keep:
        left = {path.name for path in (home / "space").iterdir()} & {"work", "tmp", "scratch"}
        assert left == {"work", "tmp", *(["scratch"] if harness.sandbox == "bubblewrap" else [])}
    else:
        assert not (home / "space").exists()


async def test_the_next_job_gets_an_empty_scratch_directory(harness: EngineHarness):
    for _ in range(4):
        end = await harness.run("ls", "-A", "/cache", scratch=("/cache",))
        assert (end.code, harness.output(end.attempt)) == (0, "")
        await harness.engine.forget(end.attempt)
        end = await harness.run(
            "sh", "-c", "ls -A > $D/list; ls $D", env={"D": "/cache"}, scratch=("/cache",)
        )
        assert harness.output(end.attempt) == "list\n"
        await harness.engine.forget(end.attempt)


async def test_a_scratch_directory_cannot_be_inside_a_mount(harness: EngineHarness, base_dir: Path):
    mount = open_directory(base_dir / "input")
    with pytest.raises(Refused, match=r"scratch directory .* lies within"):
        await harness.run("true", mounts=(mount,), scratch=(mount.target + "/own",))
    assert os.listdir(base_dir / "input") == []


# The user that the program sees itself as.


@pytest.mark.parametrize(("uid", "name"), [(1000, "ma-user"), (0, "root"), (65535, "ma-user")])
async def test_a_program_can_have_a_user_id_of_its_own(
    sandboxed: EngineHarness, base_dir: Path, uid: int, name: str
):
    mount = open_directory(base_dir / "output")
    command = f"id -u; id -un; echo $USER; echo ~; touch {mount.target}/made"
    command += "; ls /proc/self/fd | wc -l; grep CapEff /proc/self/status"
    attempt = await sandboxed.start(
        "sh", "-c", command, user=uid, mounts=(mount,), scratch=DIRECTORIES, dialect="modelarts"
    )
    assert (await sandboxed.ended(attempt)).code == 0, sandboxed.output(attempt, stream=1)
    printed = sandboxed.output(attempt).split()
    assert printed == [str(uid), name, name, "/home/ma-user", "4", "CapEff:", "0" * 16]
    assert (base_dir / "output" / "made").stat().st_uid == sandboxed.accounts.of("default").uid


async def test_a_program_that_sees_itself_as_root_has_no_more_rights(sandboxed: EngineHarness):
    command = "mount -t tmpfs none /mnt || chroot / true || chown 1 /tmp || unshare -m true"
    end = await sandboxed.run("sh", "-c", command, user=0)
    assert end.code != 0
