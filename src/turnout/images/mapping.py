"""`[images]`: what stands for an image that a job names. Pure."""

import re
from collections.abc import Container, Mapping
from typing import Literal, NamedTuple

from turnout.images.reference import LOCAL_TRANSPORTS, transport_of

HOST = "host"


class Target(NamedTuple):
    """What a job gets for an image."""

    kind: Literal["image", "archive", "runtime", "host"]
    value: str = ""
    """The name of an image, skopeo's name of a local one (`oci:/images:1`), or a runtime. Empty for the host."""
    pattern: str = ""
    """The key of `[images]` that says so."""


def target_of(image: str, images: Mapping[str, str], runtimes: Container[str] = ()) -> Target | None:
    """By the full name, then without digest and tag, then by patterns with `*`, the longest first. None: none fits."""
    for name in _names(image):
        if name in images:
            return _target(images[name], runtimes, name)
    patterns = sorted((key for key in images if "*" in key), key=lambda key: (-len(key), key))
    for pattern in patterns:
        if any(_fits(pattern, name) for name in _names(image)):
            return _target(images[pattern], runtimes, pattern)
    return None


def _target(value: str, runtimes: Container[str], pattern: str) -> Target:
    if value == HOST:
        return Target("host", pattern=pattern)
    if transport_of(value) in LOCAL_TRANSPORTS:
        return Target("archive", value, pattern)
    if value not in runtimes and re.search("[/:@]", value):
        return Target("image", value, pattern)
    return Target("runtime", value, pattern)


def _names(image: str) -> list[str]:
    without_digest = image.partition("@")[0]
    head, slash, last = without_digest.rpartition("/")
    without_tag = f"{head}{slash}{last.partition(':')[0]}"
    return list(dict.fromkeys((image, without_digest, without_tag)))


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
