"""Container images made from files of this machine, because no registry can be reached: Python 3.11 and `pause`."""

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

from turnout.clusters import VOLUMES

PYTHON, BARE, PAUSE = "localhost/python:1", "localhost/bare:1", "localhost/pause:1"
FRAMEWORKS = "localhost/frameworks:1"
"""BARE has a shell and no Python. FRAMEWORKS finds torch and TensorFlow in the first volume of the cluster's settings:
in the image they would be gigabytes."""
_PAUSE = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
_COMMANDS = [
    "cat", "chmod", "cp", "date", "echo", "env", "false", "head", "hostname", "id", "kill", "ln", "ls", "mkdir", "mv",
    "nproc", "rm", "sh", "sleep", "stty", "tail", "test", "touch", "tr", "true", "uname", "wc", "whoami",
]  # fmt: skip
_SYSTEM_LIBRARIES = [
    "libatomic.so.1", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1", "libstdc++.so.6",
    "libutil.so.1", "libz.so.1",
]  # fmt: skip
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"


def write_archive(path: Path) -> None:
    """All images as one OCI archive, for `ctr images import`."""
    found = path.parent / "frameworks.pth"
    found.write_text(f"{VOLUMES}/0\n")
    packages = found, "usr/lib/python3/dist-packages/frameworks.pth"
    with tarfile.open(path, "w") as archive:
        manifests = [
            _image(archive, PYTHON, _layer([*_commands(), *_python()])),
            _image(
                archive, FRAMEWORKS, _layer([*_commands(), *_python(), *_libraries_of_frameworks(), packages])
            ),
            _image(archive, BARE, _layer([*_commands(), *_libraries_of_python()])),
            _image(archive, PAUSE, _layer([_pause(path.parent)]), ["/pause"]),
        ]
        _add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())


def _image(
    archive: tarfile.TarFile, name: str, layer: bytes, entrypoint: list[str] | None = None
) -> dict[str, object]:
    packed = gzip.compress(layer, 1, mtime=0)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Entrypoint": entrypoint},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    kind = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": _blob(archive, f"{kind}.config.v1+json", json.dumps(config).encode()),
        "layers": [_blob(archive, f"{kind}.layer.v1.tar+gzip", packed)],
    }
    found = _blob(archive, f"{kind}.manifest.v1+json", json.dumps(manifest).encode())
    return {**found, "annotations": {"io.containerd.image.name": name}}


def _blob(archive: tarfile.TarFile, kind: str, data: bytes) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    if f"blobs/sha256/{digest}" not in archive.getnames():
        _add(archive, f"blobs/sha256/{digest}", data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def _layer(files: list[tuple[Path, str]]) -> bytes:
    """`files`: what, and where it is in the image."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as layer:
        for name, mode in (("tmp", 0o1777), ("root", 0o700), ("etc", 0o755), ("proc", 0o755), ("dev", 0o755)):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, mode
            layer.addfile(info)
        _add(layer, "etc/passwd", _PASSWD.encode())
        # As on Debian, programs find their libraries under both names.
        for name in ("bin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            layer.addfile(link)
        seen: set[str] = set()
        for source, target in files:
            if target not in seen:
                seen.add(target)
                layer.add(source, target, filter=_plain)
    return output.getvalue()


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if re.search(r"/(test|tests|idlelib|tkinter|lib2to3)(/|$)", info.name):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _commands() -> list[tuple[Path, str]]:
    programs = [path for name in _COMMANDS for path in [Path("/usr/bin") / name] if path.exists()]
    return _with_libraries(programs)


def _python() -> list[tuple[Path, str]]:
    modules = list(Path("/usr/lib/python3.11/lib-dynload").glob("*.so"))
    program = Path("/usr/bin/python3.11")
    files = _with_libraries([program, *modules])
    return [
        *files,
        (program, "usr/bin/python3"),
        (program, "usr/bin/python"),
        (Path("/usr/lib/python3.11"), "usr/lib/python3.11"),
    ]


def _libraries_of_python() -> list[tuple[Path, str]]:
    return [
        (source, target) for source, target in _python() if ".so" in target and "lib-dynload" not in target
    ]


def _libraries_of_frameworks() -> list[tuple[Path, str]]:
    """What their wheels expect of the system."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    names = [f"{name} (libc6,x86-64) => " for name in _SYSTEM_LIBRARIES]
    paths = [line.split(" => ")[1] for line in known.splitlines() if line.strip().startswith(tuple(names))]
    return [(Path(path).resolve(), _below_usr(path).lstrip("/")) for path in paths]


def _with_libraries(programs: list[Path]) -> list[tuple[Path, str]]:
    """Where a path leads through links, the file itself is put there."""
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    libraries = {_below_usr(path) for path in re.findall(r"(/\S+\.so\S*)", listed)}
    found = [(program, str(program).lstrip("/")) for program in programs]
    found += [(Path(path), path.lstrip("/")) for path in sorted(libraries) if not path.endswith(":")]
    return [(source.resolve(), target) for source, target in found]


def _below_usr(path: str) -> str:
    return f"/usr{path}" if path.startswith("/lib") else path


def _pause(directory: Path) -> tuple[Path, str]:
    source = directory / "pause.c"
    source.write_text(_PAUSE)
    subprocess.run(["gcc", "-static", "-Os", "-o", directory / "pause", source], check=True)
    return directory / "pause", "pause"
