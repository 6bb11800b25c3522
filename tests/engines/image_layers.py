"""A small image for tests: busybox, and Debian's or another installed Python with the libraries that it needs."""

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from turnout.engines.local.users.account import Account
from turnout.errors import NotFound
from turnout.images import Image, ImageCache, ImageConfig, Progress, Source, parse
from turnout.images.cache import OnProgress
from turnout.paths import Paths

_COMMANDS = (
    "sh", "cat", "ls", "id", "env", "echo", "sleep", "mkdir", "rm", "touch", "cp", "mv", "ln", "chmod", "sed", "tr",
    "grep", "mktemp", "printf", "true", "false", "kill", "ps", "stat", "sha256sum", "head", "mount", "tail", "wc",
    "hostname", "test", "find", "dirname", "basename", "df", "dd", "pwd", "whoami", "seq", "sort", "umount",
)  # fmt: skip
PYTHON = "/usr/bin/python3"
_PASSWD = """\
root:x:0:0:root:/root:/bin/sh
ma-user:x:1000:100::/home/ma-user:/bin/sh
trainer:x:1234:55::/home/trainer:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""


def make_base(root: Path) -> None:
    """Busybox and files of /etc."""
    for name in ("bin", "etc", "root", "tmp", "usr/bin", "var", "home/ma-user", "home/trainer"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "root").chmod(0o700)
    shutil.copy(_busybox(), root / "bin/busybox")
    for name in _COMMANDS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text("root:x:0:\nusers:x:100:ma-user\ntrainers:x:55:\nnogroup:x:65534:\n")
    (root / "etc/os-release").write_text('ID=tests\nPRETTY_NAME="An image of the tests"\n')


def make_python(root: Path, python: str = PYTHON) -> None:
    """Debian's or another Python with its standard library, in /usr."""
    library, program = _python(python)
    version = library.name
    skipped = shutil.ignore_patterns(
        "test", "tests", "idlelib", "__pycache__", "dist-packages", "site-packages", "config-*", "lib2to3"
    )
    shutil.copytree(
        library, root / f"usr/lib/{version}", symlinks=True, ignore=skipped, ignore_dangling_symlinks=True
    )
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    copied = root / f"usr/bin/{version}"
    shutil.copy(program, copied)
    for name in ("python3", "python"):
        (root / "usr/bin" / name).symlink_to(version)
    add_libraries(root, [program, *(library / "lib-dynload").glob("*.so")])


def add_libraries(root: Path, programs: list[Path]) -> None:
    """The shared libraries of the machine that these programs and libraries need."""
    for file in _libraries(programs):
        target = root / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def _python(python: str) -> tuple[Path, Path]:
    """Its standard library, and the program itself: not of an environment, but of what that was made with."""
    code = "import os, sys, sysconfig; print(sysconfig.get_path('stdlib')); print(os.path.realpath(sys.executable))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    library, program = done.stdout.splitlines()
    return Path(library), Path(program)


def _libraries(programs: list[Path]) -> list[Path]:
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    return sorted({Path(path) for path in re.findall(r"(/\S+\.so\S*)(?= \(0x)", done.stdout)})


def _busybox() -> str:
    found = shutil.which("busybox")
    assert found, "install busybox-static"
    return found


class TestImages(ImageCache):
    """Images whose layers are made here, instead of being pulled and unpacked."""

    __test__ = False

    def __init__(self, paths: Paths, owner: Account) -> None:
        self._layers = paths.images / "layers"
        self._owner = owner
        self._images: dict[str, Image] = {}
        self.held: dict[str, set[str]] = {}
        paths.images.mkdir(parents=True, exist_ok=True, mode=0o711)
        self._layers.mkdir(exist_ok=True, mode=0o700)
        self._give_away(self._layers)
        for name, make in (("base", make_base), ("python", make_python)):
            self._make_layer(name, lambda root, name=name, make=make: _copy(name, make, root))
        environment = ("PATH=/usr/local/bin:/usr/bin:/bin", "OF_IMAGE=yes")
        self.add("tests/python:1", "python", "base", config=ImageConfig(env=environment))

    def add(self, name: str, *layers: str, config: ImageConfig = ImageConfig()) -> None:  # noqa: B008
        """An image of these layers, the topmost first."""
        paths = tuple(self._layers / layer for layer in layers)
        self._images[str(parse(name))] = Image(f"sha256:{name.encode().hex():0>64}", paths, config, name)

    def add_layer(self, name: str, make: Callable[[Path], None]) -> None:
        self._make_layer(name, make)

    def layer(self, name: str) -> Path:
        return self._layers / name

    def lookup(self, source: Source, project: str) -> Image | None:
        return self._images.get(str(source))

    async def get(
        self, source: Source, project: str, on_progress: OnProgress | None = None, holder: str = ""
    ) -> Image:
        found = self.lookup(source, project)
        if found is None:
            raise NotFound(f"there is no image {source}")
        if on_progress:
            on_progress(Progress("downloading", message="12 of 34 MB"))
            on_progress(Progress("done"))
        if holder:
            self.hold(holder, found.digest)
        return found

    def has(self, source: Source, project: str) -> bool:
        return self.lookup(source, project) is not None

    def find(self, digest: str) -> Image | None:
        return next((image for image in self._images.values() if image.digest == digest), None)

    def holders_known(self) -> None:
        pass

    def hold(self, holder: str, digest: str) -> None:
        self.held.setdefault(holder, set()).add(digest)

    def release(self, holder: str) -> None:
        self.held.pop(holder, None)

    def _make_layer(self, name: str, make: Callable[[Path], None]) -> None:
        root = self._layers / name
        root.mkdir(mode=0o755)
        make(root)
        for directory, _, files in os.walk(root):
            for path in (directory, *(os.path.join(directory, file) for file in files)):
                self._give_away(Path(path))

    def _give_away(self, path: Path) -> None:
        if self._owner.other:
            os.chown(path, self._owner.uid, self._owner.gid, follow_symlinks=False)


_MADE: dict[str, Path] = {}


def _copy(name: str, make: Callable[[Path], None], root: Path) -> None:
    """Hard links would do if files did not have to belong to somebody else."""
    if name not in _MADE:
        directory = tempfile.mkdtemp(prefix="turnout-image-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        _MADE[name] = Path(directory)
        make(_MADE[name])
    shutil.copytree(_MADE[name], root, symlinks=True, dirs_exist_ok=True)
