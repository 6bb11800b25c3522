"""The command that connects a gang's network to the outside: slirp4netns or pasta."""

import os
from ipaddress import IPv4Network

from .namespaces import Options
from .netlink import MTU, TAP

NAMESPACE_FD, READY_FD = 3, 4
"""Descriptors of the command: the network's namespace, and what it writes a byte to when it works."""
PASTA = "pasta"


def outside_command(options: Options, name: str) -> list[str]:
    """Command line of slirp4netns or pasta, with another name. Descriptor 3 is the namespace; 4 gets a byte when it
    works.
    """
    if os.path.basename(options.outside) == PASTA:
        return _pasta_command(options, name)
    argv = [name, "--disable-host-loopback", "--enable-seccomp", f"--mtu={MTU}", f"--cidr={options.subnet}"]
    return [*argv, f"--ready-fd={READY_FD}", "--netns-type=path", f"/proc/self/fd/{NAMESPACE_FD}", TAP]


def _pasta_command(options: Options, name: str) -> list[str]:
    """The same addresses as slirp4netns uses; those of the tap are set already. No ports are forwarded in either
    direction, and the gateway does not lead to the host. The "pid file" is the descriptor that says that it works.
    """
    subnet = IPv4Network(options.subnet)
    addresses = ["-a", str(subnet[100]), "-n", str(subnet.prefixlen), "-g", str(subnet[2])]
    closed = ["-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw", "--ipv4-only"]
    closed += ["--no-dhcp", "--no-ndp", "--no-dhcpv6", "--no-ra"]
    # pasta takes its mode from its name.
    argv = [
        name + PASTA,
        "--quiet",
        "--foreground",
        "--ns-ifname",
        TAP,
        "--mtu",
        str(MTU),
        *addresses,
        *closed,
    ]
    argv += ["--dns-forward", str(subnet[3]), "--pid", f"/proc/self/fd/{READY_FD}"]
    return [*argv, "--netns-only", "--netns", f"/proc/self/fd/{NAMESPACE_FD}"]
