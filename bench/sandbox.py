"""A sandbox like ours, made by nobody but bwrap."""

from pathlib import Path


def command(directory: Path, program: tuple[str, ...]) -> tuple[str, ...]:
    raise NotImplementedError
