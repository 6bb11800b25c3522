"""The door itself: every call is a REST call, and nothing is decided here but who may come in without a key."""

import asyncio
from functools import partial
from typing import Any

import grpc
import grpc.aio

from turnout.doors.grpc import errors, transcode
from turnout.doors.grpc.methods import Method, methods
from turnout.doors.grpc.orders import Orders
from turnout.doors.grpc.peers import seen_from, strangers
from turnout.doors.grpc.rest import Rest
from turnout.errors import Denied, TurnoutError

Context = grpc.aio.ServicerContext

_REQUEST_BYTES = 16 << 20
_OPTIONS = [
    ("grpc.max_receive_message_length", _REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # a port that somebody has is not shared with them
]
_STATUSES = {code.value[0]: code for code in grpc.StatusCode}


class NotBound(Exception):
    """The port cannot be had."""


class Door:
    def __init__(self, orders: Orders) -> None:
        self._rest = Rest(orders.rest, orders.certificate)
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((_Handlers(self._rest, orders),))
        self.port = _bind(self._server, orders)

    async def open(self) -> None:
        await self._server.start()

    async def close(self, grace: float) -> None:
        """Calls that are under way have `grace` seconds."""
        await self._server.stop(grace)
        await self._rest.close()


def _bind(server: grpc.aio.Server, orders: Orders) -> int:
    """Raises NotBound."""
    host = f"[{orders.host}]" if ":" in orders.host else orders.host
    address = f"{host}:{orders.port}"
    try:
        if not orders.certificate:
            return server.add_insecure_port(address)
        pair = orders.key.encode(), orders.certificate.encode()
        return server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise NotBound(f"cannot listen on {address}: {error}") from None


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, rest: Rest, orders: Orders) -> None:
        self._rest = rest
        self._orders = orders
        self._refusal = strangers(orders)
        self._methods = methods()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        # Messages are taken and given as bytes: what cannot be read gets an answer like every other mistake.
        name = handler_call_details.method
        method = self._methods.get(name)
        return grpc.unary_unary_rpc_method_handler(
            partial(self._serve, method) if method else partial(_unknown, name)
        )

    async def _serve(self, method: Method, request: bytes, context: Context) -> bytes:
        try:
            peer = context.peer()
            if refusal := self._refusal(peer):
                raise Denied(refusal)
            call = transcode.call(method, request)
            async with asyncio.timeout(context.time_remaining()):
                answer = await self._rest.send(call, seen_from(peer, self._orders), _authorization(context))
            if answer.http < 400:
                return transcode.answer(method, answer.body)
            status = errors.of_answer(answer.http, answer.body)
        except TurnoutError as error:
            status = errors.of_error(error)
        except TimeoutError:
            status = errors.status(
                "DEADLINE_EXCEEDED", "the service did not answer before the caller's deadline"
            )
        return await _abort(context, status)


def _authorization(context: Context) -> list[str]:
    """The only metadata that the service looks at."""
    pairs = context.invocation_metadata() or ()
    # HTTP has no spaces around what a header says.
    return [str(value).strip() for key, value in pairs if key == "authorization"]


async def _unknown(name: str, _: bytes, context: Context) -> bytes:
    status = errors.status("UNIMPLEMENTED", f"{name} does not exist here", "METHOD_NOT_FOUND")
    return await _abort(context, status)


async def _abort(context: Context, status: errors.Status) -> bytes:
    details = ("grpc-status-details-bin", status.SerializeToString())
    return await context.abort(_STATUSES[status.code], status.message, (details,))
