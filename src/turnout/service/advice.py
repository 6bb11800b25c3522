"""What the user of a failed job can change about the Python that ran it."""

import re
from collections.abc import Iterable

from turnout.config import Settings
from turnout.job import Program
from turnout.runtimes import DEFAULT, default_runtime, runtime_table

_MISSING = re.compile(r"No module named ['\"]?(\w+)")
_PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "google": "google-cloud-storage",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages that are not called like their module."""


def after_failure(program: Program, python: str, last_lines: Iterable[str], settings: Settings) -> str:
    """`python`: what ran it, such as `Python 3.11.2 (/usr/bin/python3)`."""
    runtime = program.runtime
    if module := missing_module(last_lines):
        return _packages(runtime, python, module, settings, preset=bool(program.wants))
    table = runtime_table(runtime) if runtime else f"[runtimes.{DEFAULT}]"
    return f'`python` was {python}; to use another, set {table} python = "…" or packages = ["…"].'


def missing_module(lines: Iterable[str]) -> str:
    """The module that a program could not import, by the last lines of its log; empty: it says no such thing."""
    found = [match[1] for line in lines if (match := _MISSING.search(line))]
    return found[-1] if found else ""


def _packages(runtime: str, python: str, module: str, settings: Settings, *, preset: bool) -> str:
    """The setting that gives the job the module."""
    package = _PACKAGES.get(module, module)
    chosen = (
        runtime
        if runtime in settings.runtimes
        else default_runtime(settings.runtimes, settings.runtime_defaults)
    )
    known = settings.runtimes.get(chosen)
    if known and known.made:
        change = f'Add "{package}" to {runtime_table(chosen)} packages'
    elif known and known.python:
        table = runtime_table(chosen)
        change = f'Install it there, or put packages = ["{package}"] into {table}, in place of python,'
    else:
        change = f'Write this into the settings: {runtime_table(runtime or DEFAULT)} packages = ["{package}"]'
        if preset and not settings.runtime_defaults.make:
            change += ", or [runtimes] make = true, which gives each preset its framework,"
    return (
        f"`python` was {python}, which has no module {module}. {change} and restart the service. It installs what is "
        "missing when the next job asks for it."
    )
