"""The network of jobs: whether private ones work on this machine, and what the supervisor needs to make them."""

import contextlib
import json
import logging
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, NamedTuple

from turnout.config import Settings, parse_reach
from turnout.engines.local.users.account import (
    READ,
    Account,
    Accounts,
    job_uids,
    own_account,
    supervisor_account,
)
from turnout.errors import Misconfigured

_log = logging.getLogger(__name__)

_FORWARDERS = {"slirp4netns": "slirp4netns", "pasta": "passt"}
"""Programs that connect a private network to the outside, with their packages. The first that works is used."""
_TUN = Path("/dev/net/tun")
_SUBNETS = ("10.0.2.0/24", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
_ROUTES = Path("/proc/net/route")
_RESOLVER = Path("/etc/resolv.conf")
_RUNNER = Path(__file__).parents[3] / "runner"
_CHECK = "import sys; sys.path.insert(0, sys.argv[1]); from supervisor.network.check import main; main(sys.argv[2:])"
_CHECK_SECONDS = 20
_NOBODY = Account("nobody", 65534, 65534, other=True)


class JobNetwork(NamedTuple):
    own: bool = False
    """Whether each gang has a private network; otherwise all share the machine's."""
    outside: str = ""
    """The program that connects it to the outside; empty: jobs cannot reach the outside."""
    subnet: str = _SUBNETS[0]
    tun: str = str(_TUN)
    reach: tuple[tuple[str, int], ...] = ()
    """Addresses outside of the private network that the settings open to jobs."""
    gateway: bool = False
    """Whether a gang finds the gateway to its buckets in its network."""
    trouble: str = ""
    """Why private networks do not work, if the settings ask for them."""

    @property
    def message(self) -> dict[str, Any] | None:
        """What the supervisor gets; None: gangs have no private networks."""
        names = ("outside", "subnet", "tun", "reach", "gateway")
        return {name: getattr(self, name) for name in names} if self.own else None

    def resolver(self) -> str:
        """The /etc/resolv.conf of a job."""
        try:
            text = _RESOLVER.read_text(errors="replace")
        except OSError:
            text = ""
        if not self.own:
            return text
        servers = [f"nameserver {IPv4Network(self.subnet)[3]}"] if self.outside else []
        kept = [
            line for line in text.splitlines() if line.split()[:1] in (["search"], ["domain"], ["options"])
        ]
        return "\n".join([*servers, *kept, ""])


def choose(settings: Settings, accounts: Accounts, sandbox: tuple[str, ...], directory: Path) -> JobNetwork:
    """`sandbox` is bubblewrap's command, `directory` the supervisor's. Raises Misconfigured."""
    wanted = settings.engines.local.network
    if wanted == "host":
        return JobNetwork()
    found = _probe(settings, accounts, sandbox, directory)
    if not found.trouble:
        return found
    if wanted != "auto":
        raise Misconfigured(
            f'[engines.local] network = "{wanted}", but that does not work on this machine: {found.trouble}'
        )
    _log.warning(
        "NO PRIVATE NETWORK: %s. Jobs share this machine's network: they reach each other, and what listens on its "
        'loopback. If you want that, set [engines.local] network = "host".',
        found.trouble,
    )
    return found


def probe(settings: Settings) -> JobNetwork:
    """What network jobs would get. Leaves nothing behind, and does not create the supervisor's user."""
    local = settings.engines.local
    try:
        account = supervisor_account(pwd.getpwnam(local.user).pw_name)
    except KeyError:
        account = _NOBODY if os.geteuid() == 0 else own_account()
    accounts = Accounts(account, job_uids(local.uids) if account.other else range(0), Path(os.devnull))
    if settings.engines.local.network == "host":
        return JobNetwork()
    bwrap = shutil.which("bwrap") if settings.engines.local.sandbox != "none" else None
    sandbox = (
        (bwrap, "--unshare-user", "--unshare-pid", "--unshare-uts", "--ro-bind", "/", "/") if bwrap else ()
    )
    with contextlib.ExitStack() as stack:
        directory = None
        if os.geteuid() == 0:
            # Where the data directory is or will be, because /tmp often can have no devices.
            place = next(path for path in (settings.data, *settings.data.absolute().parents) if path.is_dir())
            with contextlib.suppress(OSError):
                made = tempfile.TemporaryDirectory(prefix=".turnout-", dir=place)
                directory = Path(stack.enter_context(made))
                directory.chmod(0o711)
        return _probe(settings, accounts, sandbox, directory)


def _probe(
    settings: Settings, accounts: Accounts, sandbox: tuple[str, ...], directory: Path | None
) -> JobNetwork:
    inside_only = settings.engines.local.network == "none"
    if not sandbox:
        return JobNetwork(
            trouble="jobs run without a sandbox; private networks need bubblewrap, installed and working"
        )
    programs = [""] if inside_only else [path for name in _FORWARDERS if (path := shutil.which(name))]
    if not programs:
        packages = " and ".join(_FORWARDERS.values())
        return JobNetwork(trouble=f"neither of the packages {packages} is installed")
    reach = tuple(parse_reach(text) for text in settings.engines.local.reach)
    subnet, tun = _free_subnet(), str(_tun_device(accounts.supervisor, directory))
    troubles: list[str] = []
    for program in programs:
        found = JobNetwork(True, program, subnet, tun, reach, settings.storage.in_jobs)
        trouble = _try(found, accounts, sandbox)
        if not trouble:
            return found
        troubles.append(trouble)
    return JobNetwork(trouble="; ".join(dict.fromkeys(troubles)))


def _free_subnet() -> str:
    """A subnet that no route of this machine leads to."""
    taken = [IPv4Network("0.0.0.0/32")]
    try:
        for line in _ROUTES.read_text().splitlines()[1:]:
            fields = line.split()
            target, mask = (int(fields[at], 16).to_bytes(4, sys.byteorder) for at in (1, 7))
            if any(mask):
                taken.append(IPv4Network(f"{IPv4Address(target)}/{IPv4Address(mask)}", strict=False))
    except (OSError, ValueError, IndexError):
        pass
    free = (net for net in _SUBNETS if not any(IPv4Network(net).overlaps(other) for other in taken))
    return next(free, _SUBNETS[0])


def _tun_device(account: Account, directory: Path | None) -> Path:
    """The machine's device, or one that only the supervisor's user can open, if that user cannot open the machine's."""
    if directory is None or account.blocked(_TUN, READ) is None or os.geteuid() != 0 or not _TUN.exists():
        return _TUN
    made = directory / "tun"
    try:
        if not stat.S_ISCHR(_mode(made)):
            made.unlink(missing_ok=True)
            os.mknod(made, stat.S_IFCHR | 0o600, _TUN.stat().st_rdev)
        os.chown(made, account.uid, account.gid, follow_symlinks=False)
    except OSError:
        return _TUN
    return made


def _mode(path: Path) -> int:
    """The mode, without following a link; 0: it is missing."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _try(network: JobNetwork, accounts: Accounts, sandbox: tuple[str, ...]) -> str:
    """Makes a network with a job in it, as the supervisor does. Returns why that fails; empty: it works."""
    supervisor, uids = accounts.supervisor, accounts.uids
    ids = (supervisor.uid, supervisor.gid) if supervisor.other else (-1, -1)
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _CHECK,
        str(_RUNNER),
        json.dumps(network.message),
        *map(str, (*ids, uids.start, len(uids))),
    ]
    try:
        done = subprocess.run(
            [*command, *sandbox, "--hostname", "x", "true"],
            capture_output=True,
            text=True,
            cwd="/",
            timeout=_CHECK_SECONDS,
            env={},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"it exited with code {done.returncode}" if done.returncode else ""
