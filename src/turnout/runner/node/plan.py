"""The plan of this replica, as the service sends it. Unknown fields are ignored, missing ones have a default."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple


class Bind(NamedTuple):
    source: str
    target: str
    read_only: bool


class Mount(NamedTuple):
    """A directory that is copied from or to an object store."""

    number: int
    directory: str
    """Relative to the home directory."""
    fetch: bool
    save: bool
    period: float
    """Seconds between two saves while the program runs; 0: only at the end."""
    optional: bool
    """Nothing needs to be there."""
    url: str
    """For messages."""
    files: Tuple[str, ...]
    """What must be there."""

    def name(self, key: str) -> str:
        return f"{self.url}{'' if not self.url or self.url.endswith('/') else '/'}{key}"


class Plan(NamedTuple):
    argv: List[str]
    env: Dict[str, str]
    inherit: List[str]
    """Names of variables that the program gets from the runner's environment; a `*` at the end stands for the rest."""
    cwd: str
    dirs: List[str]
    links: Dict[str, str]
    binds: List[Bind]
    hosts: str
    mounts: List[Mount]
    grace: float
    limit: Optional[float]
    """Seconds from the first start."""
    memory: int
    cores: float
    """What 100 % of CPU are; 0: the cores that this process may use."""
    processes: int
    shell: bool
    metrics_file: str
    python_shims: bool
    python: str
    """The interpreter that the shims start; empty: the runner's own."""


def decode(document: Dict[str, Any]) -> Plan:
    left = document.get("limit_left")
    return Plan(
        argv=list(document["argv"]),
        env=dict(document["env"]),
        inherit=list(document.get("inherit") or []),
        cwd=document["cwd"],
        dirs=list(document.get("dirs") or []),
        links=dict(document.get("links") or {}),
        binds=[_bind(bind) for bind in document.get("binds") or []],
        hosts=document.get("hosts") or "",
        mounts=[_mount(mount) for mount in document.get("mounts") or []],
        grace=float(document.get("grace") or 0),
        limit=document.get("limit") if left is None else left,
        memory=int(document.get("memory") or 0),
        cores=float(document.get("cores") or 0),
        processes=int(document.get("processes") or 0),
        shell=bool(document.get("shell")),
        metrics_file=document.get("metrics_file") or "",
        python_shims=bool(document.get("python_shims")),
        python=document.get("python") or "",
    )


def _bind(document: Dict[str, Any]) -> Bind:
    return Bind(document["source"], document["target"], bool(document.get("read_only")))


def _mount(document: Dict[str, Any]) -> Mount:
    return Mount(
        int(document["number"]),
        document["directory"],
        bool(document.get("fetch")),
        bool(document.get("save")),
        float(document.get("period") or 0),
        bool(document.get("optional")),
        document.get("url") or "",
        tuple(document.get("files") or ()),
    )
