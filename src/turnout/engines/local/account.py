"""Whom replicas run as: never root."""

import os
import pwd
import subprocess

from turnout.config import Settings
from turnout.errors import Misconfigured


def job_user(settings: Settings) -> pwd.struct_passwd:
    """The user of the settings for a root service, made if it is missing; otherwise whoever runs the service."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    name = settings.engines.local.user
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        entry = _make(name)
    if entry.pw_uid == 0:
        raise Misconfigured(f"[engines.local] user = {name!r} is root, and jobs never run as root: name another user")
    return entry


def _make(name: str) -> pwd.struct_passwd:
    command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
        return pwd.getpwnam(name)
    except (OSError, subprocess.CalledProcessError, KeyError) as error:
        told = getattr(error, "stderr", "") or str(error)
        raise Misconfigured(
            f"jobs run as the user {name}, who does not exist and could not be made ({told.strip()}): "
            f"run {' '.join(command)}, or name another in [engines.local] user"
        ) from None
