"""The user of child processes that need no rights, if the service runs as root."""

import os
import pwd

from turnout.child_processes.bootstrap import Identity

_NOBODY = 65534


def nobody() -> Identity | None:
    """A user that owns nothing and that no job has; None if the service does not run as root."""
    if os.geteuid() != 0:
        return None
    try:
        found = pwd.getpwnam("nobody")
    except KeyError:
        return Identity(_NOBODY, _NOBODY)
    return Identity(found.pw_uid, found.pw_gid)
