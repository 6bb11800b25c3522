"""A real Slurm on this machine: munged, slurmctld and four slurmd, in two network namespaces.

The controller and three nodes have one address, the fourth node has another, and this machine has a third, at which the
nodes reach a service. Everything else is in one temporary directory, and each instance has its own network
10.77.x.0/24, so that several of them can run at the same time. Needs root.
"""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TIMEOUT = 60
CPUS, MEMORY = 4, 16000
"""Of each node; memory in MB."""
GPUS = 2
"""Of each of the two nodes that have any."""
TIDY = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}

CONFIGURATION = """\
ClusterName=lab{number}
SlurmctldHost=localhost({near})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={directory}/munge.socket,cred_expire=10
SlurmctldPort=6817
SlurmctldPidFile={directory}/run/slurmctld.pid
SlurmdPidFile={directory}/run/%n.pid
SlurmdSpoolDir={directory}/spool/%n
StateSaveLocation={directory}/state
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdLogFile={directory}/log/%n.log
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=5
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
SlurmdTimeout=10
SlurmctldTimeout=10
MessageTimeout=5
ReturnToService=2
KillWait=5
MinJobAge={min_job_age}
NodeName={prefix}[1-2] NodeHostname=localhost NodeAddr={near} Port=6821-6822 \
CPUs={cpus} RealMemory={memory} State=UNKNOWN
NodeName={prefix}3 NodeHostname=localhost NodeAddr={near} Port=6823 \
CPUs={cpus} RealMemory={memory} Gres=gpu:a100:{gpus} State=UNKNOWN
NodeName={prefix}4 NodeHostname=localhost NodeAddr={far} Port=6824 \
CPUs={cpus} RealMemory={memory} Gres=gpu:a100:{gpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=one Nodes={prefix}1 MaxTime=INFINITE State=UP
PartitionName=far Nodes={prefix}4 MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=2 State=UP
PartitionName=closed Nodes=ALL State=DOWN
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""

CGROUPS = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=yes
MinRAMSpace=30
"""


class Slurm:
    """Daemons can be killed and started again one by one; `close` ends exactly what this instance started."""

    def __init__(self, min_job_age: int = 300) -> None:
        if os.geteuid():
            raise RuntimeError("the tests of Slurm start its daemons, which needs root")
        self.min_job_age = min_job_age
        self.number = _make_network()
        self.directory = Path(tempfile.mkdtemp(prefix="turnout-slurm-", dir="/tmp"))
        self.address = f"10.77.{self.number}.254"
        """This machine, as the nodes reach it."""
        self.near = f"10.77.{self.number}.1"
        """The controller and the first three nodes."""
        self.far = f"10.77.{self.number}.2"
        """The fourth node."""
        self.prefix = f"lab{self.number}n"
        self.nodes = [f"{self.prefix}{index}" for index in range(1, 5)]
        temporary = str(self.directory / "tmp")
        self.environment = {**TIDY, "SLURM_CONF": str(self.directory / "slurm.conf"), "TMPDIR": temporary}
        """Of commands, and so of jobs."""
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Slurm":
        try:
            self._write_configuration()
            self._start_munge()
            self.start("slurmctld")
            for node in self.nodes:
                self.start(node)
            self.wait_idle()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if "slurmctld" in self._daemons and self._daemons["slurmctld"].poll() is None:
            with contextlib.suppress(AssertionError, subprocess.SubprocessError, TimeoutError):
                self.cancel_all()
        for name in list(self._daemons):
            self.stop(name)
        _remove_network(self.number)
        _remove_cgroups(self.nodes)
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name: str) -> None:
        """`slurmctld`, or the name of a node."""
        # `ip netns exec` would hide the cgroups.
        enter = ["nsenter", f"--net=/run/netns/{_namespace(self.number, far=name == self.nodes[3])}"]
        if name == "slurmctld":
            self._spawn(name, [*enter, "slurmctld", "-D"])
            return
        (self.directory / "spool" / name).mkdir(parents=True, exist_ok=True)
        self._spawn(name, [*enter, "slurmd", "-D", "-N", name])

    def cut(self, off: bool = True) -> None:
        """Takes the fourth node off the network, or lets it back."""
        link = f"lab{self.number}far"
        subprocess.run(["ip", "link", "set", link, "down" if off else "up"], check=True)

    def hide_service(self, hidden: bool = True) -> None:
        """Nodes and the controller do not reach this machine any more, but each other; or do again."""
        for far in (False, True):
            route = ["route", "add" if hidden else "del", "blackhole", f"{self.address}/32"]
            subprocess.run(["ip", "-n", _namespace(self.number, far), *route], check=True)

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        daemon = self._daemons.pop(name)
        daemon.send_signal(how)
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def run(self, *command: str, stdin: str = "") -> str:
        done = subprocess.run(
            command, env=self.environment, input=stdin, capture_output=True, text=True, timeout=TIMEOUT
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def wait(self, condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
        """Slurm has no events to wait for."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {seconds} s; {self._trouble()}")
            time.sleep(0.05)

    def cancel_all(self) -> None:
        """No job is left, and no node runs anything."""
        jobs = self.run("squeue", "--noheader", "--format=%i").split()
        if jobs:
            self.run("scancel", *jobs)
            self.wait(lambda: not self.run("squeue", "--noheader"))

    def is_up(self) -> bool:
        ping = subprocess.run(
            ["scontrol", "ping"], env=self.environment, capture_output=True, timeout=TIMEOUT
        )
        return ping.returncode == 0

    def wait_idle(self) -> None:
        self.wait(lambda: self._idle() == len(self.nodes))

    def _idle(self) -> int:
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--partition=main", "--format=%t"],
            env=self.environment, capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        return done.stdout.split().count("idle")

    def _write_configuration(self) -> None:
        for name in ("run", "spool", "state", "log"):
            (self.directory / name).mkdir()
        # Commands of other users must reach the socket of munged and the settings.
        self.directory.chmod(0o755)
        (self.directory / "tmp").mkdir()
        (self.directory / "tmp").chmod(0o1777)
        gpus = [self.directory / f"gpu{index}" for index in range(GPUS)]
        for gpu in gpus:
            os.mknod(gpu, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        values = {
            "number": self.number, "near": self.near, "far": self.far, "directory": self.directory,
            "prefix": self.prefix, "cpus": CPUS, "memory": MEMORY, "gpus": GPUS,
            "min_job_age": self.min_job_age,
        }  # fmt: skip
        (self.directory / "slurm.conf").write_text(CONFIGURATION.format_map(values))
        (self.directory / "cgroup.conf").write_text(CGROUPS)
        nodes = f"NodeName={self.prefix}[3-4]"
        (self.directory / "gres.conf").write_text(
            f"{nodes} Name=gpu Type=a100 File={self.directory}/gpu[0-{GPUS - 1}]\n"
        )

    def _start_munge(self) -> None:
        key = self.directory / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {
            "key-file": "key",
            "socket": "socket",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        options = [f"--{option}={self.directory}/munge.{end}" for option, end in files.items()]
        self._spawn("munged", ["munged", "--foreground", "--force", "--num-threads=2", *options])
        self.wait(lambda: (self.directory / "munge.socket").exists())

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self.directory / "log" / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig=TERM", *command],  # it does not outlive tests that are killed
                env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def _trouble(self) -> str:
        dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
        logs = sorted((self.directory / "log").glob("*"))
        tails = "\n".join(f"--- {log.name}\n" + "\n".join(log.read_text().splitlines()[-15:]) for log in logs)
        return f"ended: {dead}\n{tails}"


def _namespace(number: int, far: bool) -> str:
    return f"turnout-lab{number}{'far' if far else 'near'}"


def _make_network() -> int:
    """A bridge with this machine and two network namespaces. The name of the first is the claim to the number."""
    for number in range(1, 255):
        claim = ["ip", "netns", "add", _namespace(number, far=False)]
        if subprocess.run(claim, capture_output=True).returncode == 0:
            break
    else:
        raise RuntimeError("there are 254 test networks already: `ip netns list`")
    bridge = f"lab{number}"
    commands = [
        f"ip netns add {_namespace(number, far=True)}",
        f"ip link add {bridge} type bridge",
        f"ip addr add 10.77.{number}.254/24 dev {bridge}",
        f"ip link set {bridge} up",
    ]
    for far in (False, True):
        link, namespace = f"{bridge}{'far' if far else 'near'}", _namespace(number, far)
        commands += [
            f"ip link add {link} type veth peer name eth0 netns {namespace}",
            f"ip link set {link} master {bridge} up",
            f"ip -n {namespace} addr add 10.77.{number}.{1 + far}/24 dev eth0",
            f"ip -n {namespace} link set eth0 up",
            f"ip -n {namespace} link set lo up",
        ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        _remove_network(number)
        raise RuntimeError(f"{error}: {error.stderr}") from error
    return number


def _remove_network(number: int) -> None:
    # The kernel would remove the links with the namespaces, but some time later, and their names are used again.
    for link in ("near", "far", ""):
        subprocess.run(["ip", "link", "del", f"lab{number}{link}"], capture_output=True)
    for far in (True, False):
        subprocess.run(["ip", "netns", "del", _namespace(number, far)], capture_output=True)


def _remove_cgroups(nodes: list[str]) -> None:
    for node in nodes:
        for top in Path("/sys/fs/cgroup").glob(f"*/slurm_{node}"):
            for directory, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
