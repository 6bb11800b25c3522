"""The settings in `[registries.X]`: how images are fetched from a registry, and for whom."""

import ipaddress
from pathlib import Path

import msgspec

from turnout.errors import Misconfigured


class Registry(msgspec.Struct, forbid_unknown_fields=True):
    host: str = ""
    """`registry.example.com:5000`; empty: the name of the table."""
    username: str = ""
    password: str = ""
    password_file: str = ""
    """A file with the password, for example one of systemd's credentials."""
    projects: list[str] = []
    """The projects that may use this entry, and the images that it brings; empty: every project."""
    http: bool = False
    """Whether it is reached without TLS. With a password: on this machine only."""
    ca: str = ""
    """A PEM file: the certificates that sign the registry's own."""

    def secret(self) -> str:
        """Reads the file. Raises Misconfigured."""
        if not self.password_file:
            return self.password
        try:
            return Path(self.password_file).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(f"password_file {self.password_file} cannot be read: {error}") from None


def check(registries: dict[str, Registry]) -> None:
    """Raises Misconfigured."""
    for name, one in registries.items():
        table = f"[registries.{name}]"
        host = one.host or name
        if "://" in host or "/" in host or not host:
            raise Misconfigured(
                f"{table} host = {host!r} must be a host, and a port if needed, without https:// and path"
            )
        if one.password and one.password_file:
            raise Misconfigured(f"{table} needs one of password and password_file, not both")
        if bool(one.username) != bool(one.password or one.password_file):
            raise Misconfigured(f"{table} needs username together with password or password_file")
        for setting in ("password_file", "ca"):
            path = getattr(one, setting)
            if path and not path.startswith("/"):
                raise Misconfigured(f"{table} {setting} = {path!r} is not an absolute path")
        if one.http and one.username and not _is_loopback(host):
            raise Misconfigured(f"{table} http = true would send the password in the clear: use https, or ca")


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] or host
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name == "localhost"
