"""Vertex over gRPC, on a port of its own: a process beside the service that turns every call into one of its REST API.

Google's message classes and gRPC live in that process only. Nothing here that the service imports knows them.
"""

from turnout.doors.grpc.orders import Orders
from turnout.doors.grpc.process import beside, check

__all__ = ["Orders", "beside", "check"]
