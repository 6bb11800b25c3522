"""Slurm: a gang is one Slurm job, a role is one step of it, and each task of a step is a runner."""

from turnout.engines.slurm.cluster import SlurmCluster
from turnout.engines.slurm.settings import SlurmSettings

__all__ = ["SlurmCluster", "SlurmSettings"]
