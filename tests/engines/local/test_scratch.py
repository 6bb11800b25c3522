"""Directories of a replica's own, at places that its cloud promises."""

import os
from pathlib import Path

import pytest

from tests.engines.local.yard import MASTER, Yard
from turnout.engines import Refused
from turnout.job import Mount

PLACES = ("/cache", "/home/ma-user")


def open_directory(path: Path) -> Mount:
    path.mkdir()
    path.chmod(0o777)
    return Mount(f"file://{path}", "/home/ma-user/modelarts/inputs/data_url_0")


async def test_it_is_empty_writable_and_nobody_elses(yard: Yard):
    program = "import os, sys; print(os.listdir(sys.argv[1])); open(sys.argv[1] + '/x', 'w').write('mine')"
    first = await yard.ended(await yard.python(program, "/cache", scratch=PLACES))
    assert first.code == 0, yard.out(first.attempt, stream=1)
    again = await yard.ended(await yard.python(program, "/cache", scratch=PLACES))
    assert yard.out(first.attempt) == yard.out(again.attempt) == "[]\n"
    assert not Path("/cache").exists()


async def test_a_mount_may_lie_within(yard: Yard, place: Path):
    mount = open_directory(place / "input")
    (place / "input" / "data").write_text("42")
    program = "import sys; here = sys.argv[1].split('=')[1]; print(open(here + '/data').read())"
    attempt = await yard.python(program, f"--data_url={mount.target}", mounts=(mount,), scratch=PLACES)
    assert (await yard.ended(attempt)).code == 0, yard.out(attempt, stream=1)
    assert yard.out(attempt) == "42\n"


async def test_variables_and_the_working_directory_may_name_it(yard: Yard):
    attempt = await yard.start(
        "sh",
        "-c",
        'pwd; echo x > "$MINE/x" && ls',
        env={"MINE": "/home/ma-user"},
        working_dir="/home/ma-user",
        scratch=PLACES,
    )
    assert (await yard.ended(attempt)).code == 0, yard.out(attempt, stream=1)
    where, _, there = yard.out(attempt).partition("\n")
    assert where.endswith("/home/ma-user")
    assert there == "x\n"


@pytest.mark.parametrize("keep", [False, True])
async def test_it_goes_with_the_workspace(yard: Yard, keep: bool):
    end = await yard.run("sh", "-c", "echo x > $D/x", env={"D": "/cache"}, scratch=PLACES)
    home = yard.paths.replica(end.attempt, MASTER)
    await yard.engine.forget(end.attempt, keep_workspace=keep)
    # Whatever the keeper is told after that, it does after that.
    await yard.run("true")
    left = {path.name for path in home.iterdir()} & {"work", "tmp", "scratch"}
    if keep:
        assert left == {"work", "tmp", *(["scratch"] if yard.sandbox == "bubblewrap" else [])}
    else:
        while {path.name for path in home.iterdir()} & {"work", "tmp", "scratch"}:
            await yard.run("true")


async def test_what_was_left_in_it_is_not_there_for_the_next(yard: Yard):
    for _ in range(4):
        end = await yard.run("ls", "-A", "/cache", scratch=("/cache",))
        assert (end.code, yard.out(end.attempt)) == (0, "")
        await yard.engine.forget(end.attempt)
        end = await yard.run("sh", "-c", "ls -A > $D/list; ls $D", env={"D": "/cache"}, scratch=("/cache",))
        assert yard.out(end.attempt) == "list\n"
        await yard.engine.forget(end.attempt)


async def test_within_a_mount_it_cannot_be(yard: Yard, place: Path):
    mount = open_directory(place / "input")
    with pytest.raises(Refused, match=r"scratch directory .* lies within"):
        await yard.run("true", mounts=(mount,), scratch=(mount.target + "/own",))
    assert os.listdir(place / "input") == []


# Who the program thinks it is.


@pytest.mark.parametrize(("uid", "name"), [(1000, "ma-user"), (0, "root"), (65535, "ma-user")])
async def test_a_user_id_of_its_own(boxed_yard: Yard, place: Path, uid: int, name: str):
    mount = open_directory(place / "output")
    command = f"id -u; id -un; echo $USER; echo ~; touch {mount.target}/made"
    command += "; ls /proc/self/fd | wc -l; grep CapEff /proc/self/status"
    attempt = await boxed_yard.start(
        "sh", "-c", command, user=uid, mounts=(mount,), scratch=PLACES, dialect="modelarts"
    )
    assert (await boxed_yard.ended(attempt)).code == 0, boxed_yard.out(attempt, stream=1)
    said = boxed_yard.out(attempt).split()
    assert said == [str(uid), name, name, "/home/ma-user", "4", "CapEff:", "0" * 16]
    keeper = Path(f"/proc/{boxed_yard.keeper}").stat().st_uid
    assert (place / "output" / "made").stat().st_uid == keeper


async def test_a_root_of_its_own_can_do_no_more(boxed_yard: Yard):
    command = "mount -t tmpfs none /mnt || chroot / true || chown 1 /tmp || unshare -m true"
    end = await boxed_yard.run("sh", "-c", command, user=0)
    assert end.code != 0
