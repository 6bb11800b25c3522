"""The names of images, as Docker reads them: `registry/repository:tag@digest`, where all but the repository may be left
out. Pure.
"""

import ipaddress
import re
import socket
from typing import NamedTuple

from turnout.errors import Invalid

DOCKER_HUB = "docker.io"
TRANSPORTS = (
    "docker-archive", "docker-daemon", "oci", "oci-archive", "dir", "containers-storage", "tarball", "ostree", "sif",
)  # fmt: skip
"""How skopeo names sources other than a registry. No job may name one."""
LOCAL_TRANSPORTS = ("docker-archive", "docker-daemon", "oci", "oci-archive")
"""Those that the settings and `turnout image import` may name."""

_LONGEST = 1024
_LABEL = r"[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[\w][\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAMES_OF_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


class Reference(NamedTuple):
    """A full name. `str()` of it is the only way in which the cache and skopeo see it."""

    registry: str
    """Host, and port if there is one."""
    repository: str
    tag: str = ""
    """Empty only if there is a digest."""
    digest: str = ""

    def __str__(self) -> str:
        """With a digest the tag says nothing, and skopeo does not accept both."""
        end = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.registry}/{self.repository}{end}"

    @property
    def short(self) -> str:
        """As people write it: without what Docker adds."""
        name = str(self)
        for prefix in (f"{DOCKER_HUB}/library/", f"{DOCKER_HUB}/"):
            name = name.removeprefix(prefix)
        return name

    def at(self, digest: str) -> "Reference":
        return self._replace(digest=digest)

    @property
    def host(self) -> str:
        """The host without its port."""
        host = re.sub(r":[0-9]+$", "", self.registry)
        return host.strip("[]").lower().rstrip(".")

    @property
    def moves(self) -> bool:
        """Whether the image behind the name changes: the tag is `latest`, which a name without a tag has too."""
        return not self.digest and self.tag == "latest"


def parse(name: str, field: str = "") -> Reference:
    """Raises Invalid, with the name of the caller's field."""
    if transport := transport_of(name):
        raise Invalid(
            f"the image {name[:200]!r} is not in a registry: a job may only name registry/repository:tag. "
            f"An operator can bring it by `turnout image import {transport}:… NAME`",
            field=field,
        )
    text = name.removeprefix("docker://")
    if len(text) > _LONGEST:
        raise _invalid(name, f"it has more than {_LONGEST} characters", field)
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise _invalid(name, "its digest must be sha256: and 64 hexadecimal digits", field)
    registry, repository = _split_registry(rest)
    repository, colon, tag = repository.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _invalid(name, f"{tag[:50]!r} is not a tag", field)
    if not _HOST.fullmatch(registry):
        raise _invalid(name, f"{registry[:50]!r} is not the host of a registry", field)
    if registry in _NAMES_OF_DOCKER_HUB:
        registry = DOCKER_HUB
        repository = repository if "/" in repository else f"library/{repository}"
    if not _REPOSITORY.fullmatch(repository):
        raise _invalid(
            name, f"{repository[:100]!r} is not a repository: use lower-case letters and digits", field
        )
    return Reference(registry, repository, tag or ("" if digest else "latest"), digest)


def transport_of(name: str) -> str:
    """`oci` for `oci:/images/trainer:1`; empty for an image in a registry."""
    transport, colon, _ = name.partition(":")
    return transport if colon and transport in TRANSPORTS else ""


def is_internal(host: str) -> bool:
    """Whether it is this machine or a link-local address, such as the metadata server of a cloud. A job may reach those
    only where the settings name them.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(host))  # also 127.1 and 0x7f000001
        except OSError:
            return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback or address.is_link_local or address.is_unspecified


def _split_registry(name: str) -> tuple[str, str]:
    """Docker's rule: what is before the first slash is a registry if it has a dot or a colon or is localhost."""
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first.lower(), rest
    return DOCKER_HUB, name


def _invalid(name: str, why: str, field: str) -> Invalid:
    return Invalid(
        f"{name[:200]!r} is not the name of an image: {why}. It must look like registry/repository:tag",
        field=field,
    )
