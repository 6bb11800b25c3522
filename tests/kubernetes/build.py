"""Builds Kubernetes 1.20 from Debian's source package, once for a machine: `python -m tests.kubernetes.build`.

Only the four programs that the tests start are built. They are kept in a cache directory outside of the clone,
`~/.cache/turnout-tests` or $TURNOUT_TEST_CACHE. Needs root if one of the Debian packages is missing.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = [
    "golang-1.19-go", "jq", "rsync", "dpkg-dev", "make", "gcc",  # to build
    "containerd", "runc", "containernetworking-plugins", "iptables", "iproute2",  # to run
]  # fmt: skip
PROGRAMS = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"]
# Without the clouds' own volumes and load balancers and without dockershim, which are a third of the code.
TAGS = "providerless,dockerless"
ENTRY = re.compile(r"^Types:.*$", re.MULTILINE)


class Unbuildable(Exception):
    """Kubernetes cannot be built here; the text says why."""


def kubernetes() -> Path:
    """The directory that has the programs and etcd, built if need be (some minutes)."""
    target = _target()
    cache = target.parent
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "kubernetes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install(PACKAGES)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as work:
                built = _build(Path(work))
                built.rename(target)
    return target


def is_built() -> bool:
    return _target().is_dir()


def _target() -> Path:
    cache = Path(os.environ.get("TURNOUT_TEST_CACHE") or Path.home() / ".cache" / "turnout-tests")
    return cache / "kubernetes-1.20"


def _install(packages: list[str]) -> None:
    query = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *packages]
    known = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    missing = [package for package in packages if f"{package} installed" not in known]
    if not missing:
        return
    if os.geteuid():
        raise Unbuildable(f"only root may install {', '.join(missing)}")
    _run(["apt-get", "-qq", "update"])
    _run(
        [
            "apt-get",
            "-qq",
            "-y",
            "-o",
            "DPkg::Lock::Timeout=300",
            "install",
            "--no-install-recommends",
            *missing,
        ]
    )


def _build(work: Path) -> Path:
    started = time.monotonic()
    binaries = work / "bin"
    binaries.mkdir()
    apt = _source_lists(work)
    # Not installed: the package would start a daemon on this machine.
    _run(["apt-get", "-qq", "download", "etcd-server"], cwd=work)
    _run(["dpkg", "-x", str(next(work.glob("etcd-server_*.deb"))), "etcd"], cwd=work)
    shutil.copy2(work / "etcd/usr/bin/etcd", binaries)
    _run([*apt, "-qq", "update"])
    _run([*apt, "-qq", "source", "--only-source", "kubernetes"], cwd=work)
    source = next(path for path in work.glob("kubernetes-*") if path.is_dir())
    (source / ".go/src/k8s.io").mkdir(parents=True)
    (source / ".go/src/k8s.io/kubernetes").symlink_to("../../..")
    environment = {
        **os.environ,
        "GOPATH": str(source / ".go"),
        "GOCACHE": str(work / "cache"),
        "GOFLAGS": f"-tags={TAGS}",
        "CGO_ENABLED": "0",
        "PATH": f"/usr/lib/go-1.19/bin:{os.environ['PATH']}",
    }
    what = " ".join(f"cmd/{program}" for program in PROGRAMS)
    _run(["make", f"WHAT={what}"], cwd=source, environment=environment)
    for program in PROGRAMS:
        shutil.copy2(source / "_output/bin" / program, binaries)
    print(f"built Kubernetes in {time.monotonic() - started:.0f} s", flush=True)
    return binaries


def _source_lists(work: Path) -> list[str]:
    """apt-get with the machine's own Debian archive as a source of source packages, and with lists of its own."""
    parts = work / "sources"
    parts.mkdir()
    (work / "lists/partial").mkdir(parents=True)
    found = False
    for file in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        text = file.read_text() if file.is_file() else ""
        if "debian-archive-keyring" not in text and not re.search(r"^deb\s.*/debian\s", text, re.MULTILINE):
            continue
        found = True
        text = ENTRY.sub("Types: deb-src", re.sub(r"^deb\s", "deb-src ", text, flags=re.MULTILINE))
        (parts / file.name).write_text(text)
    if not found:
        raise Unbuildable("this machine has no Debian archive in /etc/apt")
    return [
        "apt-get",
        "-o", "Dir::Etc::sourcelist=/dev/null",
        "-o", f"Dir::Etc::sourceparts={parts}",
        "-o", f"Dir::State::lists={work}/lists",
        "-o", "APT::Sandbox::User=root",
    ]  # fmt: skip


def _run(command: list[str], cwd: Path | None = None, environment: dict[str, str] | None = None) -> None:
    environment = {**(environment or os.environ), "DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if result.returncode:
        text = result.stdout.decode(errors="replace")[-3000:]
        raise Unbuildable(f"{' '.join(command[:6])} …: exit code {result.returncode}\n{text}")


if __name__ == "__main__":
    try:
        print(kubernetes())
    except Unbuildable as error:
        sys.exit(str(error))
