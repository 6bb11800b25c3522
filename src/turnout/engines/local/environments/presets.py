"""The environments of the runtimes that the APIs' catalogues have: `presets.toml`, beside this file."""

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import NamedTuple

import msgspec

Version = tuple[int, int]

_ASKED_PYTHON = re.compile(r"[.-](?:py|cp)_?(\d)\.?(\d+)")


class Preset(NamedTuple):
    packages: tuple[str, ...]
    python: str
    """The version of an installed interpreter; empty: the host's."""


class _Framework(msgspec.Struct, forbid_unknown_fields=True):
    names: list[str]
    packages: list[str]
    newest: list[str]
    wheels: dict[str, list[str]]
    unversioned: list[str] = []
    before: dict[str, list[str]] = {}
    gpu: list[str] = []

    def has_wheels(self, version: Version, python: str) -> bool:
        first, last = self.wheels.get(python, ("99.0", "0.0"))
        return _version(first) <= version <= _version(last)


def find(name: str, pythons: Iterable[str], host: str, gpus: bool = False) -> Preset | None:
    """`pythons`: the versions of the installed interpreters, such as `3.12`. `host`: that of the host's Python.

    The framework has the version that the runtime names, if an installed Python has wheels of it: the Python that the
    runtime names, or else the nearest one. Otherwise it has its newest version. None: there is no preset of this name.
    """
    for framework in _frameworks().values():
        for pattern in framework.names:
            if match := re.fullmatch(pattern, name):
                return _choose(framework, _named(match), name, {*pythons, host}, host, gpus)
        if any(re.fullmatch(pattern, name) for pattern in framework.unversioned):
            return _newest(framework, gpus)
    return None


def _choose(
    framework: _Framework, version: Version, name: str, pythons: set[str], host: str, gpus: bool
) -> Preset:
    asked = _ASKED_PYTHON.search(name)
    wanted = f"{asked[1]}.{asked[2]}" if asked else host
    able = [python for python in pythons if framework.has_wheels(version, python)]
    if not able:
        return _newest(framework, gpus)
    python = min(able, key=lambda one: (one != wanted, one != host, -_version(one)[1]))
    text = f"{version[0]}.{version[1]}"
    packages = [one.format(version=text) for one in framework.packages]
    if gpus and framework.gpu:
        packages = [f"{one}=={text}.*" for one in framework.gpu]
    for limit, more in framework.before.items():
        packages += more if version < _version(limit) else []
    return Preset(tuple(packages), "" if python == host else python)


def _newest(framework: _Framework, gpus: bool) -> Preset:
    return Preset(tuple(framework.gpu if gpus and framework.gpu else framework.newest), "")


def _named(match: re.Match[str]) -> Version:
    return int(match[1]), int(match[2])


def _version(text: str) -> Version:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


@cache
def _frameworks() -> dict[str, _Framework]:
    text = resources.files("turnout.engines.local.environments").joinpath("presets.toml").read_text()
    return msgspec.convert(tomllib.loads(text), dict[str, _Framework])
