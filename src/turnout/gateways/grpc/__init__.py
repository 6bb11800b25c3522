"""Vertex over gRPC, on its own port: a separate process turns every call into a call of the service's REST API.

Google's message classes and gRPC are imported in that process only, never in the service.
"""

from turnout.gateways.grpc.process import check, run_process
from turnout.gateways.grpc.setup import GatewaySetup

__all__ = ["GatewaySetup", "check", "run_process"]
