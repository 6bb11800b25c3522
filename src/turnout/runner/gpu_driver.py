"""What a container needs to use a GPU, as the machine's CDI description says (Container Device Interface): pure.

NVIDIA's container toolkit writes it: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`. Hooks of it cannot run
here; those that make links and that tell the loader about directories are carried out by other means.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")
KIND = "nvidia.com/gpu"


class Edits(NamedTuple):
    devices: tuple[tuple[str, str], ...] = ()
    """(path here, path inside)"""
    mounts: tuple[tuple[str, str], ...] = ()
    """(path here, path inside), read-only."""
    env: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """(what it leads to, path inside)"""
    libraries: tuple[str, ...] = ()
    """Directories for LD_LIBRARY_PATH."""

    def plus(self, other: "Edits") -> "Edits":
        return Edits(
            _merged(self.devices, other.devices),
            _merged(self.mounts, other.mounts),
            _merged(self.env, other.env),
            _merged(self.links, other.links),
            _merged(self.libraries, other.libraries),
        )


class GpuDriver(NamedTuple):
    common: Edits = Edits()
    by_gpu: Mapping[str, Edits] = {}

    def of(self, gpus: Iterable[int]) -> Edits:
        """For a replica with these GPUs. Raises LookupError if one is not described."""
        edits = self.common
        for number in gpus:
            found = self.by_gpu.get(str(number)) or self.by_gpu.get(f"gpu{number}")
            if found is None:
                raise LookupError(f"the CDI description of this machine has no GPU {number}")
            edits = edits.plus(found)
        return edits


def _merged(mine: tuple[_T, ...], theirs: tuple[_T, ...]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys((*mine, *theirs)))


def parse(documents: Iterable[Mapping[str, Any]]) -> GpuDriver | None:
    """None: none of them describes GPUs of NVIDIA. Raises ValueError for a document that is not CDI."""
    common, by_gpu = Edits(), dict[str, Edits]()
    for document in documents:
        try:
            if document["kind"] != KIND:
                continue
            common = common.plus(_edits(document.get("containerEdits") or {}))
            by_gpu |= {
                str(one["name"]): _edits(one.get("containerEdits") or {}) for one in document["devices"]
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not a CDI description: {error}") from None
    return GpuDriver(common, by_gpu) if by_gpu else None


def _edits(found: Mapping[str, Any]) -> Edits:
    hooks: list[dict[str, Any]] = found.get("hooks") or []
    arguments: list[str] = [text for hook in hooks for text in hook.get("args") or ()]
    nodes: list[dict[str, str]] = found.get("deviceNodes") or []
    mounts: list[dict[str, str]] = found.get("mounts") or []
    variables: list[str] = found.get("env") or []
    links = [text.partition("::") for text in _values(arguments, "--link")]
    return Edits(
        tuple((one.get("hostPath") or one["path"], one["path"]) for one in nodes),
        tuple((one["hostPath"], one["containerPath"]) for one in mounts),
        tuple((name, value) for name, _, value in (text.partition("=") for text in variables)),
        tuple((leads_to, path) for leads_to, _, path in links if path),
        tuple(_values(arguments, "--folder")),
    )


def _values(arguments: list[str], option: str) -> list[str]:
    """The values of `--option value` and `--option=value`."""
    found = [text.removeprefix(f"{option}=") for text in arguments if text.startswith(f"{option}=")]
    return found + [value for name, value in itertools.pairwise(arguments) if name == option]
