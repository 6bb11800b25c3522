"""A start in an image, beside the same in the sandbox without one, and beside podman and docker with the same image."""

import contextlib
import hashlib
import io
import itertools
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from bench import clock, sandbox
from bench.floor import Floor
from bench.service import running
from bench.starts import MS, Starter, take_turns
from bench.table import Row, Table

_IMAGE = "bench:1"
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
"""Podman raises limits without these, which not every machine allows."""


def image(table: Table, directory: Path, floor: Floor) -> None:
    tar = _tar(directory / "root")
    layout = _layout(directory / "image", tar)
    settings = f'[runtimes."tia-1.7.0"]\nimage = "oci:{layout}:1"\n'
    bare_sandbox = sandbox.command(directory / "bwrap", clock.DATE)
    with (
        running(directory / "without", "bubblewrap") as without,
        running(directory / "with", "bubblewrap", settings=settings) as within,
    ):
        times = take_turns(
            table,
            "image",
            {
                "bwrap": lambda: floor.start(bare_sandbox, sandbox.files()),
                "without": Starter(without, clock.DATE),
                "with": Starter(within, clock.DATE),
            },
        )
    more = times["with"] - times["without"]
    what = "a start in an image, beyond one in the sandbox"
    table.add(Row("image", what, more, "ms", target=5, judged="measured", detail=times))
    for name, engine in (("podman", _podman), ("docker", _docker)):
        with contextlib.ExitStack() as opened:
            try:
                command = opened.enter_context(engine(directory / name, tar))
            except (OSError, subprocess.SubprocessError) as error:
                table.note(f"image: {name} does not run here: {error}")
                continue
            theirs = _median(table, name, command)
        what = f"a start in an image, to `{name} run`"
        table.add(Row(f"image-{name}", what, times["with"], "ms", theirs, target=0.1))


def _median(table: Table, name: str, command: list[str]) -> float:
    """Milliseconds from the start of the command until the program prints the time."""
    count = 5 if table.quick else 20
    step = table.steps(f"image, {name}", count + 2)
    found: list[float] = []
    for number in range(count + 2):
        before = time.time_ns()
        done = subprocess.run(command, capture_output=True, check=True)
        if number >= 2:
            found.append((int(done.stdout) - before) / 1e9 * MS)
        step()
    return statistics.median(found)


@contextmanager
def _podman(directory: Path, tar: bytes) -> Generator[list[str]]:
    directory.mkdir()
    podman = ["podman", "--root", str(directory / "root"), "--runroot", str(directory / "run")]
    podman += ["--runtime", "runc", "--cgroup-manager", "cgroupfs"]
    subprocess.run([*podman, "import", "-", _IMAGE], input=tar, capture_output=True, check=True)
    yield [*podman, "run", "--rm", "--network", "none", *_LIMITS, _IMAGE, *clock.DATE]


@contextmanager
def _docker(directory: Path, tar: bytes) -> Generator[list[str]]:
    if os.geteuid() != 0:
        raise PermissionError("only root can start dockerd")
    directory.mkdir()
    # The path of a socket is short.
    sockets = Path(tempfile.mkdtemp())
    docker = ["docker", "--host", f"unix://{sockets}/docker.sock"]
    command = [
        "dockerd",
        *docker[1:],
        "--data-root",
        str(directory / "data"),
        "--exec-root",
        str(sockets / "run"),
    ]
    command += [
        "--pidfile",
        str(sockets / "docker.pid"),
        "--bridge",
        "none",
        "--iptables=false",
        "--ip6tables=false",
    ]
    with (directory / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for pause in itertools.repeat(0.1, 200):
            if daemon.poll() is not None:
                raise OSError((directory / "log").read_text().splitlines()[-1])
            if subprocess.run([*docker, "version"], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(pause)
        subprocess.run([*docker, "import", "-", _IMAGE], input=tar, capture_output=True, check=True)
        yield [*docker, "run", "--rm", "--network", "none", _IMAGE, *clock.DATE]
    finally:
        daemon.terminate()
        daemon.wait(30)
        shutil.rmtree(sockets, ignore_errors=True)


def _tar(root: Path) -> bytes:
    """`/bin/date` of this machine and its libraries."""
    done = subprocess.run(["ldd", clock.DATE[0]], capture_output=True, text=True, check=True)
    for name in (clock.DATE[0], *re.findall(r"(/\S+)(?= \(0x)", done.stdout)):
        target = root / name.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, target)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(root, ".")
    return packed.getvalue()


def _layout(directory: Path, tar: bytes) -> Path:
    """An image of the OCI layout."""
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True)
    _kind: Callable[[str], str] = "application/vnd.oci.image.{}".format

    def put(data: bytes, kind: str) -> dict[str, object]:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"mediaType": _kind(kind), "digest": f"sha256:{name}", "size": len(data)}

    layer = put(tar, "layer.v1.tar")
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    document = {"architecture": architecture, "os": "linux", "config": {}}
    document["rootfs"] = {"type": "layers", "diff_ids": [layer["digest"]]}
    config = put(json.dumps(document).encode(), "config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": _kind("manifest.v1+json"),
        "config": config,
        "layers": [layer],
    }
    named = put(json.dumps(manifest).encode(), "manifest.v1+json")
    named["annotations"] = {"org.opencontainers.image.ref.name": "1"}
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory
