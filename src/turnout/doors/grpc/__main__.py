"""The process: takes its orders from the first line of its input, and goes when that ends."""

import asyncio
import contextlib
import logging
import sys

import msgspec

from turnout.doors.grpc.orders import Orders
from turnout.doors.grpc.server import Door, NotBound

_log = logging.getLogger("turnout.doors.grpc")

_GRACE_SECONDS = 1


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(_serve(orders)))


async def _serve(orders: Orders) -> int:
    try:
        door = Door(orders)
    except NotBound as error:
        _log.error("%s", error)
        return 1
    await door.open()
    # The service writes nothing more; it holds the other end for as long as it lives.
    await asyncio.to_thread(sys.stdin.buffer.read)
    await door.close(_GRACE_SECONDS)
    return 0


if __name__ == "__main__":
    main()
