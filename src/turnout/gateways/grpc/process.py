"""Starts the gRPC process with the service, restarts it when it dies, and ends it with the service."""

import asyncio
import contextlib
import importlib.util
from collections.abc import AsyncGenerator

from turnout.child_processes.bootstrap import Identity, Reply
from turnout.child_processes.child import Child, ChildProgram
from turnout.errors import Misconfigured
from turnout.gateways.grpc.setup import GatewaySetup

PROGRAM = ChildProgram("gRPC process", "turnout.gateways.grpc.__main__", isolated=False)

_NEEDED = ("grpc", "google.cloud.aiplatform_v1", "httpcore")
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before each restart. After a minute without a failure they start from the first again."""
_END_SECONDS = 3


def check() -> None:
    """Raises Misconfigured unless everything that the process needs is installed."""
    missing = [name for name in _NEEDED if not _installed(name)]
    if missing:
        raise Misconfigured(
            f"[grpc] port needs Python packages that are not installed ({', '.join(missing)}): "
            "run pip install 'turnout[grpc]', or leave the setting out"
        )


@contextlib.asynccontextmanager
async def run_process(setup: GatewaySetup, identity: Identity | None = None) -> AsyncGenerator[None]:
    """Runs the process for as long as the block lasts, as the user `identity` if it is given."""
    child = Child(
        PROGRAM,
        Reply,
        setup,
        identity=identity,
        inherits=(setup.listener,),
        grace=_END_SECONDS,
        pauses=_PAUSES,
    )
    running = asyncio.create_task(child.keep_running(), name="grpc")
    try:
        yield
    finally:
        await child.close()
        await running


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
