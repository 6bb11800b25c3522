"""A real Kubernetes on this machine: etcd, the control plane, and a node that runs pods with kubelet and containerd.

Everything is in one temporary directory, one network namespace, one mount namespace and one cgroup, so that several
instances can run at the same time, and `close` leaves nothing. The kernel settings that kubelet changes are put back.
Needs root.
"""

import base64
import contextlib
import hashlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kubernetes import images
from tests.kubernetes.build import Unbuildable, kubernetes

TIMEOUT = 120
NAMESPACE = "turnout"
DOMAIN = "cluster.local"
"""Of its DNS names. A DNS server runs only where a test starts one: see `dns.py`."""
ADMIN = "the-token-of-the-administrator"
SETTINGS = ("vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops",
            "kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes")  # fmt: skip
"""Kernel settings that kubelet changes."""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

CONTAINERD = """\
version = 2
root = "{directory}/containerd"
state = "{directory}/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
address = "{directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
max_concurrent_downloads = 1
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{directory}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
KUBELET = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "failSwapOn": False,
    "oomScoreAdj": 0,
    "enforceNodeAllocatable": [],
    "makeIPTablesUtilChains": False,
    "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
    "imageGCHighThresholdPercent": 100,
    "nodeStatusUpdateFrequency": "2s",
    "nodeLeaseDurationSeconds": 5,
    "syncFrequency": "10s",
    "maxPods": 110,
    "registerNode": True,
    # The defaults since Kubernetes 1.27. Those of 1.20 (5 and 10) are the time that a node needs for a pod: it makes
    # about ten requests for each.
    "kubeAPIQPS": 50,
    "kubeAPIBurst": 100,
    "eventRecordQPS": 50,
    "eventBurst": 100,
    "serializeImagePulls": False,
    "featureGates": {"LocalStorageCapacityIsolation": False},
}


class Kubernetes:
    """Daemons can be stopped and started again one by one."""

    def __init__(self) -> None:
        if os.geteuid():
            raise Unbuildable("its daemons need root")
        self.programs = kubernetes()
        _remove_abandoned(self.programs)
        self.number = _make_network()
        self.directory = Path(tempfile.mkdtemp(prefix="turnout-kubernetes-", dir="/tmp"))
        self.address = f"10.78.{self.number}.254"
        """This machine, as pods reach it."""
        self.node_address = f"10.78.{self.number}.1"
        self.server = f"https://{self.node_address}:6443"
        self.node = f"node{self.number}"
        self.kubeconfig = self.directory / "admin.conf"
        self.settings = _original_settings(self.programs)
        self.claim = self.programs.parent / f"kubernetes-{self.number}.json"
        """Who runs it, and what the kernel's settings were: for the next one, if this one is killed."""
        self.claim.write_text(
            json.dumps({"pid": os.getpid(), "directory": str(self.directory), "settings": self.settings})
        )
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Kubernetes":
        try:
            self._prepare()
            for name in ("etcd", "kube-apiserver"):
                self.start(name)
            self.wait(self.is_up)
            for name in ("kube-controller-manager", "kube-scheduler", "containerd"):
                self.start(name)
            self._import_images()
            self.start("kubelet")
            self.wait(self.is_ready)
            self.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def traces(self) -> list[str]:
        """What it has changed on this machine and not put back. Another instance that still runs has reasons to."""
        if list(self.programs.parent.glob("kubernetes-*.json")):
            return []
        found = [name for name, value in self.settings.items() if _sysctl(name).read_text() != value]
        rules = subprocess.run(
            ["iptables-save"], capture_output=True, text=True, check=False, env={"PATH": PATH}
        )
        found += [line for line in rules.stdout.splitlines() if "KUBE-" in line]
        found += [name for name in os.listdir("/sys/class/net") if name == f"kube{self.number}"]
        return found + [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{self.group_name}")]

    def close(self) -> None:
        for name in list(self._daemons):
            if name != "containerd":
                self.stop(name, signal.SIGKILL)
        _end_group(self.number)
        for daemon in [*self._daemons.values(), *filter(None, [self._holder])]:
            daemon.kill()
            daemon.wait()
        _clean_up(self.number, self.claim)

    # Daemons.

    def start(self, name: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                [*self._enter(), "setpriv", "--pdeathsig=KILL", *self._command(name)],
                env={"PATH": PATH, "HOME": str(self.directory)}, cwd=self.directory,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        daemon = self._daemons.pop(name)
        daemon.send_signal(how)
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def pause(self, name: str, on: bool = True) -> None:
        """It is there, and does not answer."""
        self._daemons[name].send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def _command(self, name: str) -> list[str]:
        directory = self.directory
        config = f"--kubeconfig={self.kubeconfig}"
        if name == "containerd":
            return ["/usr/bin/containerd", "--config", f"{directory}/containerd.toml"]
        arguments = {
            "etcd": [
                f"--data-dir={directory}/etcd", "--unsafe-no-fsync",
                "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
                "--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
                "--initial-cluster=default=http://127.0.0.1:2380",
            ],
            "kube-apiserver": [
                "--etcd-servers=http://127.0.0.1:2379", f"--cert-dir={directory}/certificates",
                f"--advertise-address={self.node_address}", f"--bind-address={self.node_address}",
                "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/24",
                f"--token-auth-file={directory}/tokens.csv", "--authorization-mode=RBAC",
                "--service-account-issuer=turnout", f"--service-account-key-file={directory}/account.key",
                f"--service-account-signing-key-file={directory}/account.key", "--api-audiences=turnout",
                "--disable-admission-plugins=ServiceAccount",
                "--kubelet-preferred-address-types=InternalIP", "--default-not-ready-toleration-seconds=5",
                "--default-unreachable-toleration-seconds=5",
            ],
            "kube-controller-manager": [
                config, f"--service-account-private-key-file={directory}/account.key", "--leader-elect=false",
                "--node-monitor-grace-period=8s", "--node-monitor-period=2s", "--controllers=*",
                f"--root-ca-file={directory}/certificates/apiserver.crt", f"--cert-dir={directory}/manager",
            ],
            "kube-scheduler": [config, "--leader-elect=false", f"--cert-dir={directory}/scheduler"],
            "kubelet": [
                config, f"--config={directory}/kubelet.yaml", f"--root-dir={directory}/kubelet",
                f"--cert-dir={directory}/kubelet-certificates", f"--hostname-override={self.node}",
                f"--node-ip={self.node_address}", "--container-runtime=remote",
                f"--container-runtime-endpoint=unix://{directory}/containerd.sock",
            ],
        }  # fmt: skip
        return [str(self.programs / name), *arguments[name]]

    def _enter(self) -> list[str]:
        """In its network, its mounts and its cgroup."""
        assert self._holder
        inside = ["sh", "-c", f'echo $$ >{self._group}/cgroup.procs; exec "$@"', "sh"]
        return [*inside, "nsenter", f"--target={self._holder.pid}", "--mount", "--net"]

    @property
    def group_name(self) -> str:
        return _namespace(self.number)

    @property
    def _group(self) -> Path:
        return _group(self.number) / "daemons"

    # The API, for tests.

    def is_up(self) -> bool:
        with contextlib.suppress(OSError):
            return self.raw("GET", "/readyz") == b"ok"
        return False

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            found = self.request("GET", f"/api/v1/nodes/{self.node}")
            return any(
                (one["type"], one["status"]) == ("Ready", "True") for one in found["status"]["conditions"]
            )
        return False

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        return json.loads(self.raw(method, path, body, kind))

    def raw(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> bytes:
        with self.open(method, path, body, kind) as answer:
            return answer.read()

    def open(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """The answer, to be read as it comes."""
        request = urllib.request.Request(f"{self.server}{path}", method=method)
        request.add_header("Authorization", f"Bearer {ADMIN}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", kind)
        context = ssl.create_default_context(cafile=str(self.directory / "certificates/apiserver.crt"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        return opener.open(request, timeout=30)

    def list(self, kind: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        return self.request("GET", f"/api/v1/namespaces/{namespace}/{kind}")["items"]

    def clear(self, namespace: str = NAMESPACE) -> None:
        """Removes all pods, and what jobs have left."""
        for kind in ("pods", "configmaps"):
            for item in self.list(kind, namespace):
                with contextlib.suppress(urllib.error.HTTPError):
                    path = f"/api/v1/namespaces/{namespace}/{kind}/{item['metadata']['name']}"
                    self.request("DELETE", path, {"gracePeriodSeconds": 0})
        self.wait(lambda: not self.list("pods", namespace))

    def taint(self, *taints: dict[str, str]) -> None:
        """The only ones that the node has."""
        path, kind = f"/api/v1/nodes/{self.node}", "application/merge-patch+json"
        self.request("PATCH", path, {"spec": {"taints": list(taints)}}, kind)

    def cores(self) -> int:
        """Of the node: those of this machine."""
        node = self.request("GET", f"/api/v1/nodes/{self.node}")
        return int(node["status"]["allocatable"]["cpu"])

    def make_claim(self, name: str, directory: Path) -> None:
        """A volume of this machine that pods can mount."""
        size = {"storage": "1Gi"}
        spec = {"accessModes": ["ReadWriteMany"], "storageClassName": name}
        volume = spec | {"capacity": size, "hostPath": {"path": str(directory)}}
        self.request("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": volume})
        claim = spec | {"resources": {"requests": size}}
        path = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
        self.request("POST", path, {"metadata": {"name": name}, "spec": claim})

    def wait(self, condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {seconds} s; {self._trouble()}")
            time.sleep(0.1)

    # Preparation.

    def _prepare(self) -> None:
        directory = self.directory
        directory.chmod(0o755)
        for name in ("run", "cni", "certificates", "kubelet"):
            (directory / name).mkdir()
        (directory / "tokens.csv").write_text(f'{ADMIN},administrator,1,"system:masters"\n')
        subprocess.run(
            ["openssl", "genrsa", "-out", directory / "account.key", "2048"], check=True, capture_output=True
        )
        (directory / "containerd.toml").write_text(CONTAINERD.format(directory=directory, pause=images.PAUSE))
        (directory / "cni/pods.conflist").write_text(json.dumps(_pod_network(self.number, directory)))
        _make_groups(self.group_name)
        self._group.mkdir(parents=True, exist_ok=True)
        kubelet = KUBELET | {
            "cgroupRoot": f"/{self.group_name}",
            "resolvConf": str(directory / "resolv.conf"),
            "clusterDNS": [self.address],
            "clusterDomain": DOMAIN,
        }
        (directory / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        (directory / "kubelet.yaml").write_text(json.dumps(kubelet))
        self.write_kubeconfig(self.kubeconfig, ADMIN)
        self._holder = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{_namespace(self.number)}", "setpriv", "--pdeathsig=KILL",
             "unshare", "--mount", "--propagation=private", "sleep", "infinity"],
        )  # fmt: skip
        mine = os.readlink("/proc/self/ns/mnt")
        self.wait(lambda: os.readlink(f"/proc/{self._holder.pid}/ns/mnt") != mine)  # type: ignore[union-attr]
        inside = ["nsenter", f"--target={self._holder.pid}", "--mount", "mount"]
        subprocess.run([*inside, "--make-rshared", "/"], check=True)
        # The network namespaces of pods.
        subprocess.run([*inside, "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)

    def write_kubeconfig(self, path: Path, token: str, namespace: str = NAMESPACE, server: str = "") -> None:
        certificate = str(self.directory / "certificates/apiserver.crt")
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [
                {
                    "name": "lab",
                    "cluster": {"server": server or self.server, "certificate-authority": certificate},
                }
            ],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [
                {"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": namespace}}
            ],
        }
        path.write_text(json.dumps(content))

    def _import_images(self) -> None:
        source = hashlib.sha256(Path(images.__file__).read_bytes()).hexdigest()
        archive = self.programs.parent / f"kubernetes-images-{source[:8]}.tar"
        if not archive.exists():
            new = archive.with_suffix(f".{os.getpid()}")
            images.write_archive(new)
            new.rename(archive)
        self.wait((self.directory / "containerd.sock").exists)
        command = [
            "ctr",
            f"--address={self.directory}/containerd.sock",
            "--namespace=k8s.io",
            "images",
            "import",
        ]
        self.wait(
            lambda: (
                not subprocess.run([*self._enter(), *command, str(archive)], capture_output=True).returncode
            )
        )

    def _trouble(self) -> str:
        dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
        logs = sorted(self.directory.glob("*.log"))
        tails = "\n".join(f"--- {log.name}\n" + "\n".join(log.read_text().splitlines()[-15:]) for log in logs)
        return f"ended: {dead}\n{tails}"


def _sysctl(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")


def _namespace(number: int) -> str:
    return f"turnout-kube{number}"


def _make_network() -> int:
    """A network namespace for everything. Pods have 10.79.x.0/24 behind it."""
    for number in range(1, 255):
        if not subprocess.run(["ip", "netns", "add", _namespace(number)], capture_output=True).returncode:
            break
    else:
        raise RuntimeError("there are 254 test networks already: `ip netns list`")
    name, link = _namespace(number), f"kube{number}"
    commands = [
        f"ip link add {link} type veth peer name eth0 netns {name}",
        f"ip addr add 10.78.{number}.254/24 dev {link}",
        f"ip link set {link} up",
        f"ip -n {name} addr add 10.78.{number}.1/24 dev eth0",
        f"ip -n {name} link set eth0 up",
        f"ip -n {name} link set lo up",
        f"ip -n {name} route add default via 10.78.{number}.254",
        f"ip route add 10.79.{number}.0/24 via 10.78.{number}.1",
        f"nsenter --net=/run/netns/{name} sysctl -q -w net.ipv4.ip_forward=1",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        _remove_network(number)
        raise RuntimeError(f"{error}: {error.stderr}") from error
    return number


def _remove_network(number: int) -> None:
    subprocess.run(["ip", "link", "del", f"kube{number}"], capture_output=True)
    subprocess.run(["ip", "netns", "del", _namespace(number)], capture_output=True)


def _pod_network(number: int, directory: Path) -> dict[str, Any]:
    ranges = [[{"subnet": f"10.79.{number}.0/24"}]]
    bridge = {
        "type": "bridge", "bridge": "pods", "isGateway": True, "ipMasq": False,
        "ipam": {"type": "host-local", "dataDir": str(directory / "run/addresses"), "ranges": ranges,
                 "routes": [{"dst": "0.0.0.0/0"}]},
    }  # fmt: skip
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, {"type": "loopback"}]}


def _original_settings(programs: Path) -> dict[str, str]:
    """Where another instance runs, they are changed already: it knows what they were."""
    for claim in programs.parent.glob("kubernetes-*.json"):
        with contextlib.suppress(OSError, ValueError):
            return json.loads(claim.read_text())["settings"]
    return {name: _sysctl(name).read_text() for name in SETTINGS if _sysctl(name).exists()}


def _remove_abandoned(programs: Path) -> None:
    """Its processes have died with the tests that started it."""
    for claim in programs.parent.glob("kubernetes-*.json"):
        if not Path(f"/proc/{json.loads(claim.read_text())['pid']}").exists():
            _clean_up(int(claim.stem.rpartition("-")[2]), claim)


def _clean_up(number: int, claim: Path) -> None:
    kept = json.loads(claim.read_text())
    _end_group(number)
    _remove_groups(_namespace(number))
    for name, value in kept["settings"].items():
        _sysctl(name).write_text(value)
    shutil.rmtree(kept["directory"], ignore_errors=True)
    claim.unlink()
    # The last: whoever makes a network with this number next writes a claim of the same name.
    _remove_network(number)


def _make_groups(name: str) -> None:
    for controller in Path("/sys/fs/cgroup").iterdir():
        if controller.is_dir() and not controller.is_symlink() and controller.name != "unified":
            (controller / name).mkdir(exist_ok=True)
            if controller.name == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (controller / name / file).write_text((controller / file).read_text())


def _group(number: int) -> Path:
    unified = Path("/sys/fs/cgroup/unified")
    return (unified if unified.is_dir() else Path("/sys/fs/cgroup")) / _namespace(number)


def _end_group(number: int) -> None:
    """The daemons, containers and their shims are all below it."""
    group = _group(number)
    if group.exists():
        (group / "cgroup.kill").write_text("1")
        end = time.monotonic() + 30
        while "populated 1" in (group / "cgroup.events").read_text() and time.monotonic() < end:
            time.sleep(0.05)


def _remove_groups(name: str) -> None:
    for top in Path("/sys/fs/cgroup").glob(f"*/{name}"):
        for directory, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)


def token_of(account: str, kubernetes: Kubernetes, namespace: str = NAMESPACE) -> str:
    """A token of a service account, as pods and services of the cluster get it."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return kubernetes.request("POST", path, request)["status"]["token"]


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()
