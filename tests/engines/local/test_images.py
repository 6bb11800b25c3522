"""Replicas that run in an image."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, EngineHarness
from tests.engines.local.test_sandbox import ATTACK
from tests.engines.local.test_shell import run_command, shell
from turnout.images import ImageConfig
from turnout.job import Cause, Mount, Noted, Program, ReplicaName, Role
from turnout.vault import KeyRing

IMAGE = "tests/python:1"
KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="test_ordinary_user does what an ordinary user can")


@pytest.fixture(params=["sandbox", pytest.param("podman", marks=pytest.mark.slow)])
async def harness(base_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[EngineHarness]:
    async with EngineHarness(base_dir, IMAGE, sandbox="bubblewrap", containers=request.param) as one:
        yield one


async def test_a_program_is_in_the_image(harness: EngineHarness):
    end = await harness.run(
        "sh", "-c", ". /etc/os-release; echo $ID $OF_IMAGE $HOME $USER; id -u; pwd; ls /usr"
    )
    assert end.code == 0, harness.output(end.attempt, stream=1)
    assert harness.output(end.attempt).split() == ["tests", "yes", "/root", "root", "0", "/", "bin", "lib"]
    noted = await harness.wait(lambda report: isinstance(report, Noted) and report.image)
    assert isinstance(noted, Noted)
    assert noted.message.startswith(f"the image {IMAGE}, sha256:")


async def test_the_root_is_writable_and_thrown_away(harness: EngineHarness):
    script = (
        "echo mine > /etc/os-release && rm /bin/head && mkdir /root/x && echo y > /usr/lib/y && ls -d /root/x"
    )
    end = await harness.run("sh", "-c", script)
    assert (end.code, harness.output(end.attempt)) == (0, "/root/x\n"), harness.output(end.attempt, stream=1)
    again = await harness.run("sh", "-c", "cat /etc/os-release; ls /bin/head; ls /root /usr/lib/y")
    assert "ID=tests" in harness.output(again.attempt)
    assert "/bin/head" in harness.output(again.attempt)
    assert again.code != 0
    assert harness.images
    assert "ID=tests" in (harness.images.layer("base") / "etc/os-release").read_text()
    for attempt in (end.attempt, again.attempt):
        await harness.engine.forget(attempt)
    assert not harness.images.held


async def test_attacks_fail_as_they_do_without_an_image(harness: EngineHarness, base_dir: Path):
    for path in (harness.paths.root_key, harness.paths.database):
        path.write_text("secret")
        path.chmod(0o644)
    other = await harness.run("sh", "-c", "echo secret > /root/work.txt; echo secret")
    theirs = harness.paths.replica(other.attempt, MASTER) / "stdout"
    secrets = (harness.paths.root_key, harness.paths.database, harness.paths.supervisor / "journal", theirs)
    (base_dir / "own").mkdir()
    mounts = (Mount(f"file://{base_dir}/own", "/data"),)
    attempt = await harness.python(ATTACK, *map(str, secrets), str(harness.supervisor), mounts=mounts)
    assert (await harness.ended(attempt)).code == 0, harness.output(attempt, stream=1)
    found = json.loads(harness.output(attempt))
    for secret in ("root key", "database", "journal", "other job", "data directory", "shadow"):
        assert found[secret] == "FileNotFoundError", secret
    assert found["write status"] == "OSError"
    assert found["kill supervisor"] == "ProcessLookupError"
    assert not found["mount"]
    assert len(found["processes"]) <= 3
    assert found["capabilities"] == ["0" * 16]
    assert set(found["outside"]) == {"FileNotFoundError"}
    assert found["below a mount"] == "OSError"
    home = harness.paths.replica(attempt, MASTER)
    shown = {source for source, _ in found["mounts"] if source.startswith(str(harness.paths.data))}
    own = {f"{home}/space/{name}" for name in ("box/out", "box/hosts")}
    # Podman shows the same pipes once more.
    own |= {
        path for path in shown if path in {f"{home}/space/box/out/{name}" for name in ("stdout", "stderr")}
    }
    assert shown == own | {source for source in shown if source.startswith(f"{harness.paths.runtimes}/")}
    assert found["descriptors"] == ["0", "1", "2", "3"]


async def test_links_of_an_image_lead_nowhere_outside(harness: EngineHarness, base_dir: Path):
    """Bubblewrap follows links at mount points, in a root that still shows this machine below /oldroot."""
    open_to_all = base_dir / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / "kept").write_text("kept")

    def make(root: Path) -> None:
        for name in ("etc", "lib", "usr"):
            (root / name).mkdir()
        for name in ("data", "run", "opt", "dev", "proc", "workspace"):
            (root / name).symlink_to(f"/oldroot{open_to_all}/{name}")
        for name in ("hosts", "resolv.conf"):
            (root / "etc" / name).symlink_to(f"../../../../../../oldroot{open_to_all}/{name}")
        (root / "mnt").symlink_to("usr")

    assert harness.images
    harness.images.add_layer("hostile", make)
    harness.images.add(
        "tests/hostile:1", "hostile", "python", "base", config=ImageConfig(working_dir="/opt/app")
    )
    source = base_dir / "own"
    source.mkdir()
    (source / "file").write_text("mine")
    mounts = (Mount(f"file://{source}", "/data/deep"), Mount(f"file://{source}", "/mnt/x"))
    end = await harness.run(
        "sh",
        "-c",
        "cat /data/deep/file /usr/x/file; pwd; cat /etc/hosts",
        mounts=mounts,
        image="tests/hostile:1",
    )
    assert end.code == 0, harness.output(end.attempt, stream=1)
    assert harness.output(end.attempt).startswith("minemine/opt/app\n127.0.0.1 localhost")
    assert os.listdir(open_to_all) == ["kept"]


@pytest.mark.parametrize(
    ("config", "launch", "printed"),
    [
        ({"user": "trainer"}, {}, "1234 55 trainer /home/trainer"),
        ({"user": "1234"}, {}, "1234 55 trainer /home/trainer"),
        ({"user": "1234:100"}, {}, "1234 100 trainer /home/trainer"),
        ({"user": "trainer:users"}, {}, "1234 100 trainer /home/trainer"),
        ({"user": "4711"}, {}, "4711 0 4711 /"),
        ({}, {"user": 1000}, "1000 100 ma-user /home/ma-user"),
        ({"env": ("HOME=/else", "USER=somebody")}, {}, "0 0 somebody /else"),
        ({"env": ("HOME=/else",)}, {"env": {"HOME": "/mine"}}, "0 0 root /mine"),
    ],
)
async def test_the_user(
    harness: EngineHarness, config: dict[str, object], launch: dict[str, object], printed: str
):
    assert harness.images
    harness.images.add("tests/user:1", "base", config=ImageConfig(**config))  # pyright: ignore[reportArgumentType]
    script = "echo $(id -u) $(id -g) $USER $HOME; echo x > /etc/mine"
    end = await harness.run("sh", "-c", script, image="tests/user:1", **launch)
    assert (end.code, harness.output(end.attempt)) == (0, printed + "\n"), harness.output(
        end.attempt, stream=1
    )


async def test_a_user_whom_the_image_does_not_have(harness: EngineHarness):
    assert harness.images
    harness.images.add("tests/user:2", "base", config=ImageConfig(user="ghost"))
    end = await harness.run("true", image="tests/user:2")
    assert end.cause == Cause.REFUSED
    assert "USER is 'ghost', and its /etc/passwd has no user 'ghost'" in end.message


async def test_a_program_that_the_image_does_not_have(harness: EngineHarness):
    end = await harness.run("getent", "hosts")
    assert (end.cause, end.code) == (Cause.NOT_FOUND, 127)


async def test_an_image_that_cannot_be_had(harness: EngineHarness):
    end = await harness.run("true", image="tests/missing:1")
    assert (end.cause, end.message) == (Cause.STAGING, "there is no image docker.io/tests/missing:1")


async def test_mounts_hosts_and_scratch_directories(harness: EngineHarness, base_dir: Path):
    source = base_dir / "source"
    source.mkdir()
    source.chmod(0o777)
    script = "echo out > /data/out && echo x > /home/ma-user/x && cat /etc/hosts && hostname && echo x > /dev/stderr"
    end = await harness.run(
        "sh", "-c", script, mounts=(Mount(f"file://{source}", "/data"),), scratch=("/home/ma-user",)
    )
    assert end.code == 0, harness.output(end.attempt, stream=1)
    assert (source / "out").read_text() == "out\n"
    assert harness.output(end.attempt, stream=1) == "x\n"
    host = harness.output(end.attempt).split()[-1]
    assert f" {host}\n" in harness.output(end.attempt)
    path = "/home/ma-user/x"
    assert harness.engine.read_scratch_file(end.attempt, MASTER, path, 100) == b"x\n"


async def test_a_start_that_is_repeated_while_the_image_is_fetched(harness: EngineHarness):
    """The controller repeats one when the supervisor was away."""
    launch = harness.launch("echo", "once")
    for _ in range(3):
        await harness.engine.start(launch)
    await harness.ended(launch.attempt)
    assert harness.output(launch.attempt) == "once\n"


async def test_a_restart_in_place_keeps_the_root(harness: EngineHarness):
    launch = harness.launch("sh", "-c", "echo x >> /root/count; cat /root/count; exit 1")
    await harness.engine.start(launch)
    await harness.ended(launch.attempt)
    await harness.engine.restart(launch, MASTER, 1)
    await harness.wait(lambda report: getattr(report, "cause", None) is not None and report.restarts == 1)  # type: ignore[attr-defined]
    assert harness.output(launch.attempt) == "x\nx\nx\n"


async def test_a_killed_supervisor_and_the_next_service(harness: EngineHarness):
    attempt = await harness.start(
        "sh", "-c", "echo begin; while [ ! -e /root/go ]; do sleep 0.1; done; exit 6"
    )
    await harness.wait_for_output(attempt, "begin")
    await harness.kill_supervisor()
    await harness.disconnect()
    assert harness.images
    harness.images.held.clear()
    await harness.reconnect()
    assert harness.images.held[str(attempt)]
    async with shell(harness, attempt) as terminal:
        assert await run_command(terminal, "id -u; . /etc/os-release; echo $ID; touch /root/go") == [
            "0",
            "tests",
        ]
    assert (await harness.ended(attempt)).code == 6


async def test_a_gang_of_two_images(harness: EngineHarness):
    assert harness.images
    harness.images.add(
        "tests/base:1", "base", config=ImageConfig(env=("WHO=base",), cmd=("sh", "-c", "echo $WHO"))
    )
    roles = (
        Role("master", Program(("sh", "-c", "echo $WHO $OF_IMAGE"), root=IMAGE), leads=True),
        Role("worker", Program(root="tests/base:1"), replicas=2),
    )
    launch = harness.launch("unused", roles=roles, image="")
    await harness.engine.start(launch)
    for name, printed in (("master-0", "yes"), ("worker-0", "base"), ("worker-1", "base")):
        replica = ReplicaName.parse(name)
        await harness.ended(launch.attempt, replica)
        assert harness.output(launch.attempt, replica) == printed + "\n"


async def test_projects_do_not_share_what_they_write(harness: EngineHarness):
    for project in ("one", "two"):
        end = await harness.run(
            "sh", "-c", "ls /root; echo x > /root/x; stat -c %u /bin/busybox", project=project
        )
        assert (end.code, harness.output(end.attempt)) == (0, "0\n"), harness.output(end.attempt, stream=1)


async def test_the_disk_limit_includes_the_root(base_dir: Path):
    async with EngineHarness(base_dir, IMAGE, sandbox="bubblewrap", disk=16 << 20) as harness:
        script = "dd if=/dev/urandom of=/usr/big bs=1M count=24 2>/dev/null; sleep 1000"
        end = await harness.run("sh", "-c", script)
        assert end.cause == Cause.DISK_LIMIT


async def test_nothing_of_an_encrypted_job_stays(base_dir: Path, tmp_path: Path):
    file = tmp_path / "key"
    file.write_bytes(b"\1" * 32)
    async with EngineHarness(
        base_dir, IMAGE, sandbox="bubblewrap", ring=KeyRing({KEY: str(file)})
    ) as harness:
        attempt = await harness.start("sh", "-c", "echo secret-4711 | tee /root/x", key=KEY)
        assert (await harness.ended(attempt)).code in (0, 127)
        home = harness.paths.replica(attempt, MASTER)
        found = [path for path in home.rglob("*") if path.is_file() and b"secret-4711" in path.read_bytes()]
        assert found == []


async def test_a_line_at_the_beginning_of_the_log(harness: EngineHarness):
    roles = (Role("master", Program(("echo", "mine"), notice="[turnout] told first"), leads=True),)
    launch = harness.launch("unused", roles=roles, image="")
    await harness.engine.start(launch)
    await harness.ended(launch.attempt)
    assert harness.output(launch.attempt) == "[turnout] told first\nmine\n"


@pytest.mark.parametrize(
    ("config", "printed"),
    [
        ({"working_dir": "//"}, "/"),
        ({"working_dir": "../../new"}, "/new"),
        ({"working_dir": "new/below"}, "/new/below"),
        ({"env": ("=nothing", "A=1")}, "/"),
        ({"user": ":55"}, "/"),
    ],
)
async def test_odd_words_of_an_image(harness: EngineHarness, config: dict[str, object], printed: str):
    assert harness.images
    harness.images.add("tests/odd:1", "base", config=ImageConfig(**config))  # pyright: ignore[reportArgumentType]
    end = await harness.run("/bin/sh", "-c", "/bin/pwd -P", image="tests/odd:1")
    assert (end.code, harness.output(end.attempt)) == (0, printed + "\n"), end.message


@pytest.mark.parametrize("user", ["9" * 5000, "4294967295", "0:4294967295", "\u0663", "-1"])
async def test_numbers_that_are_no_user(harness: EngineHarness, user: str):
    assert harness.images
    ids = f"x:x:{'9' * 5000}:0::/:\nx:x:0:99999999999::/:\n"

    def make(root: Path) -> None:
        (root / "etc").mkdir()
        (root / "etc/passwd").write_text(ids)
        (root / "etc/group").write_text(f"g:x:{'8' * 5000}:\n")

    harness.images.add_layer("numbers", make)
    harness.images.add("tests/numbers:1", "numbers", "base", config=ImageConfig(user=user))
    end = await harness.run("true", image="tests/numbers:1")
    assert end.cause == Cause.REFUSED
    assert "the image's USER is" in end.message
    assert len(end.message) < 500


async def test_a_directory_that_cannot_be_entered(harness: EngineHarness):
    assert harness.images
    harness.images.add("tests/no-directory:1", "base", config=ImageConfig(working_dir="/etc/passwd/x"))
    end = await harness.run("true", image="tests/no-directory:1")
    assert end.message == "master-0 could not be started: /etc/passwd/x in the image: Not a directory"


async def test_as_many_layers_as_the_kernel_takes(harness: EngineHarness):
    assert harness.images
    names = [f"{number:032}" for number in range(499)]
    for name in names:
        harness.images.add_layer(name, lambda root, name=name: (root / f"of-{name}").mkdir())
    harness.images.add("tests/layers:1", *names, "base")
    end = await harness.run("/bin/sh", "-c", "/bin/ls / | /bin/grep -c of-", image="tests/layers:1")
    assert (end.code, harness.output(end.attempt)) == (0, "499\n"), end.message


async def test_credentials_of_an_image_and_of_the_job_are_not_mixed(harness: EngineHarness):
    """As for variables of the job: what belongs together comes from one side."""
    assert harness.images
    harness.engine.shared_variables = lambda launch, own_network: {
        "AWS_ACCESS_KEY_ID": "theirs",
        "AWS_SESSION_TOKEN": "session",
        "AWS_ENDPOINT_URL": "http://here",
        "ACCESS_KEY_ID": "of-obs",
    }
    config = ImageConfig(env=("PATH=/bin", "AWS_ACCESS_KEY_ID=mine", "AWS_SECRET_ACCESS_KEY=mine"))
    harness.images.add("tests/key:1", "base", config=config)
    harness.images.add("tests/plain:1", "base", config=ImageConfig(env=("PATH=/bin",)))
    for image, found in (
        ("tests/key:1", "mine of-obs"),
        ("tests/plain:1", "theirs of-obs session http://here"),
    ):
        script = "echo $AWS_ACCESS_KEY_ID $ACCESS_KEY_ID $AWS_SESSION_TOKEN $AWS_ENDPOINT_URL"
        end = await harness.run("sh", "-c", script, image=image)
        assert harness.output(end.attempt) == found + "\n"
