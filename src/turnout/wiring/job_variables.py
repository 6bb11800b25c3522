"""The variables by which programs in jobs find the buckets of their project."""

from turnout.gateways.jobs.app import PREFIX
from turnout.job import Launch
from turnout.job.storage_variables import METADATA_ADDRESS, StorageAccess, variables

from .base import Base


def local_variables(base: Base, port: int, launch: Launch, own_network: bool) -> dict[str, str]:
    """For a gang on this machine. `port`: that of the service."""
    if own_network:
        return _variables(base, launch, f"http://{METADATA_ADDRESS}", own_network=True)
    host = base.settings.server.host
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return _variables(base, launch, base.settings.endpoint(reachable, port), own_network=False)


def node_variables(base: Base, endpoint: str, launch: Launch) -> dict[str, str]:
    """For a gang on a cluster. `endpoint`: the service, as nodes reach it."""
    return _variables(base, launch, endpoint.rstrip("/"), own_network=False)


def _variables(base: Base, launch: Launch, endpoint: str, *, own_network: bool) -> dict[str, str]:
    key = base.job_keys.make(launch.attempt)
    scheme, _, address = endpoint.partition("://")
    if not own_network:
        # Google's clients ask a metadata server by HTTP only.
        address = f"{address}{PREFIX}{key.address}" if scheme == "http" else ""
    return variables(StorageAccess(endpoint, address, launch.project, key.id, key.secret, key.session))
