"""What Huawei's moxing has besides `mox.file`."""

from __future__ import annotations

from typing import Any, Callable


def refuse(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__`, which says what this moxing has."""

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{module}.{name} is not available: this moxing has mox.file only. "
            "Huawei's training loops (mox.run, get_flag, …) are in its own images."
        )

    return missing
