"""Runs a test module as the user `nobody`. Only root can do that."""

import pwd
import subprocess
from pathlib import Path

# On some machines only root may open /dev/net/tun. Only these processes see the copy, which everybody may open.
_OPEN_TUN = """
mknod -m 666 "$0" c 10 200 && mount --bind "$0" /dev/net/tun
exec setpriv --reuid "$1" --regid "$2" --clear-groups -- /usr/bin/python3 -m "$3" "${@:4}"
"""


def run_as_nobody(
    module: str, home: Path, *arguments: str, code: Path, path: str = "", timeout: float = 100
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m module home arguments…` in the directory `code`.

    `path` is the PYTHONPATH; empty: `code`. `home` must belong to that user.
    """
    nobody = pwd.getpwnam("nobody")
    user = (str(nobody.pw_uid), str(nobody.pw_gid))
    return subprocess.run(
        ["unshare", "--mount", "bash", "-c", _OPEN_TUN, str(home) + ".tun", *user, module, str(home), *arguments],
        capture_output=True, text=True, cwd=code, timeout=timeout,
        env={"PYTHONPATH": path or str(code), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home)},
    )  # fmt: skip
