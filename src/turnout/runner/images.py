"""What an image says about the process that runs in it, and what the job says instead: the rules of Docker and
Kubernetes, pure.
"""

from typing import NamedTuple

from turnout.job import Program
from turnout.runner.targets import Impossible

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH in images that set none."""
_LARGEST_ID = (1 << 31) - 1
"""That bubblewrap takes."""


class ImageUser(NamedTuple):
    """A line of the image's /etc/passwd."""

    name: str
    uid: int
    gid: int
    home: str


class ImageRoot(NamedTuple):
    """An image on this machine."""

    layers: tuple[str, ...]
    """Directories, the topmost first."""
    digest: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = ""
    user: str = ""
    """`name`, `uid`, either with `:group`; empty: root."""
    users: tuple[ImageUser, ...] = ()
    groups: tuple[tuple[str, int], ...] = ()
    """Name and gid of the lines of its /etc/group."""


def argv(image: ImageRoot, program: Program) -> list[str]:
    """A command replaces the entry point and the default arguments of the image; arguments alone replace the latter.

    Raises Impossible.
    """
    found = program.argv if program.command else (*image.entrypoint, *(program.args or image.cmd))
    if not found:
        raise Impossible(f"the image {program.root} has neither ENTRYPOINT nor CMD: set a command")
    return list(found)


def user(image: ImageRoot, program: Program) -> ImageUser:
    """Who the program is inside. Raises Impossible for a user or group whom the image does not have."""
    name, _, group = (str(program.user), "", "") if program.user is not None else image.user.partition(":")
    found = _user(image, name or "0")
    if not group:
        return found
    gid = number_of(group) if group.isdecimal() else dict(image.groups).get(group)
    if gid is None:
        raise Impossible(f"{_says(image)}, and its /etc/group has no group {group[:100]!r}")
    return found._replace(gid=gid)


def _user(image: ImageRoot, name: str) -> ImageUser:
    by_name = next((user for user in image.users if user.name == name), None)
    if by_name:
        return by_name
    uid = number_of(name)
    if uid is None:
        raise Impossible(f"{_says(image)}, and its /etc/passwd has no user {name[:100]!r}")
    return next((user for user in image.users if user.uid == uid), ImageUser(name, uid, 0, "/"))


def number_of(text: str) -> int | None:
    """The id of a user or group; None if it is not one."""
    known = text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST_ID))
    return int(text) if known and int(text) <= _LARGEST_ID else None


def _says(image: ImageRoot) -> str:
    return f"the image's USER is {image.user[:100]!r}"
