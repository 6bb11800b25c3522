"""The gRPC process. Reads its setup from the first line of its input, and ends when the input ends."""

import asyncio
import contextlib
import logging
import sys

from turnout import memory
from turnout.child_processes.bootstrap import drop_privileges, read_setup
from turnout.gateways.grpc.server import GrpcServer
from turnout.gateways.grpc.setup import GatewaySetup

_GRACE_SECONDS = 1


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    setup = read_setup(GatewaySetup)
    memory.prepare()
    drop_privileges(setup)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(setup))


async def _serve(setup: GatewaySetup) -> None:
    server = GrpcServer(setup)
    await server.open()
    # The service writes nothing more, and its end of the pipe closes when it ends.
    await asyncio.to_thread(sys.stdin.buffer.read)
    await server.close(_GRACE_SECONDS)


if __name__ == "__main__":
    main()
