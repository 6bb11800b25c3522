# pyright: reportMissingImports=false
"""Lines of JSON: a request on standard input, `{"id": 1, "call": "list", "arguments": {…}}`, and its reply on standard
output, `{"id": 1, "result": …}` or `{"id": 1, "error": "…"}`. Lines with `event` come by themselves: `ready` or
`failed` first, then `changed` when a replica has ended.

The process ends when its standard input ends.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

AT_A_TIME = 8
CONNECT_SECONDS = 5.0
NAMESPACE = "turnout"


class Replies:
    """Standard output. What Ray prints goes to standard error instead."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def send(self, **document: Any) -> None:
        with self._lock:
            self._file.write(json.dumps(document, default=str) + "\n")
            self._file.flush()


def main() -> None:
    replies = Replies()
    try:
        gangs, ready = connect(sys.argv[1], lambda: replies.send(event="changed"))
    except Exception as error:  # noqa: BLE001 (the service tells the operator, whatever it is)
        replies.send(event="failed", message=str(error) or type(error).__name__)
        os._exit(1)
    replies.send(event="ready", **ready)
    calls = {
        "submit": gangs.submit,
        "cancel": gangs.cancel,
        "list": gangs.all,
        "look": gangs.look,
        "nodes": gangs.nodes,
        "available": gangs.available,
        "check": gangs.check,
    }

    def serve(request: dict[str, Any]) -> None:
        try:
            replies.send(id=request["id"], result=calls[request["call"]](**request["arguments"]))
        except Exception as error:  # noqa: BLE001 (as above)
            replies.send(id=request["id"], error=str(error) or type(error).__name__)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for line in sys.stdin:
            pool.submit(serve, json.loads(line))
        # Not by the end of `with`: a request may wait for a cluster that is away.
        os._exit(0)


def connect(address: str, changed: Callable[[], None]) -> tuple[Any, dict[str, str]]:
    try:
        import ray
    except ImportError as error:
        raise RuntimeError(f"{sys.executable} has no Ray ({error}): set `python`") from None
    check_port(address)
    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="warning",
        configure_logging=True,
    )
    from .gangs import Gangs

    gangs = Gangs(changed)
    gangs.attach()
    return gangs, {"ray": ray.__version__, "python": platform.python_version()}


def check_port(address: str) -> None:
    """Fails at once if nothing listens: Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return  # `auto`, or what Ray has to say about it
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"nothing answers at {address}: {error.strerror or error}") from None


if __name__ == "__main__":
    main()
