"""Engines beyond this machine: a cluster runs a runner for each replica, and the runners report to the service."""

from turnout.engines.remote.cluster import (
    CheckResult,
    Cluster,
    ClusterJob,
    ClusterNode,
    EndKind,
    Gang,
    Gone,
    Phase,
    RunnerCall,
)
from turnout.engines.remote.engine import RemoteEngine
from turnout.engines.remote.nodes import NodeJob, NodeUse
from turnout.engines.remote.records import needed_runners
from turnout.engines.remote.runner_calls import RunnerCalls
from turnout.engines.remote.settings import RemoteSettings, remote_settings

__all__ = [
    "CheckResult",
    "Cluster",
    "ClusterJob",
    "ClusterNode",
    "EndKind",
    "Gang",
    "Gone",
    "NodeJob",
    "NodeUse",
    "Phase",
    "RemoteEngine",
    "RemoteSettings",
    "RunnerCall",
    "RunnerCalls",
    "needed_runners",
    "remote_settings",
]
