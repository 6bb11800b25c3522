"""What a program inside a job finds: the metadata server, and the storage gateways with the key of its job."""

from turnout.gateways.jobs.app import JobGateway
from turnout.gateways.jobs.servers import GangServers

__all__ = ["GangServers", "JobGateway"]
