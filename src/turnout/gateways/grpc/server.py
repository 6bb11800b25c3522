"""The gRPC server. It authenticates the caller, then turns each call into a REST call."""

import asyncio
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import grpc.aio

from turnout import memory
from turnout.errors import Invalid, TurnoutError
from turnout.gateways.grpc import errors, transcode
from turnout.gateways.grpc.callers import GrpcCallers, UnknownCaller, service_address
from turnout.gateways.grpc.connections import Connections
from turnout.gateways.grpc.intake import SMALL, Intake
from turnout.gateways.grpc.methods import Method, methods
from turnout.gateways.grpc.rest import Answer, Rest
from turnout.gateways.grpc.setup import GatewaySetup
from turnout.pools import ThreadPool

Context = grpc.aio.ServicerContext

_REQUEST_BYTES = 10 << 20
"""The limit of the REST API."""
_OPTIONS = [
    ("grpc.max_receive_message_length", _REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", 100),
    # Limits what a client can send before its message is read to 64 KB for each connection.
    ("grpc.http2.bdp_probe", 0),
]
_INSTEAD = "use a CustomJob (JobService/CreateCustomJob) to run a program"
_STATUSES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcServer:
    def __init__(self, setup: GatewaySetup) -> None:
        self._rest = Rest(setup.rest, setup.certificate, setup.secret)
        self._connections = Connections(socket.socket(fileno=setup.listener))
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((_Handlers(self._rest, setup, self._connections),))
        if setup.certificate:
            pair = setup.key.encode(), setup.certificate.encode()
            secure = grpc.ssl_server_credentials([pair])
            self._connections.bind(lambda address: self._server.add_secure_port(address, secure))
        else:
            self._connections.bind(self._server.add_insecure_port)

    async def open(self) -> None:
        await self._server.start()
        await self._connections.open()

    async def close(self, grace: float) -> None:
        """Running calls get `grace` seconds to end."""
        self._connections.refuse_new()
        await self._server.stop(grace)
        self._connections.close()
        await self._rest.close()


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, rest: Rest, setup: GatewaySetup, connections: Connections) -> None:
        self._rest = rest
        self._setup = setup
        self._connections = connections
        self._callers = GrpcCallers(rest, setup)
        self._intake = Intake(memory.give_back)
        self._transcoding = ThreadPool("transcoding", 2, 1)
        self._methods = methods()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        # All calls are streams here, because gRPC reads the messages of a stream only on request. Messages are bytes,
        # so that a message that cannot be decoded gets an ordinary error.
        name = handler_call_details.method
        method = self._methods.get(name)
        return grpc.stream_unary_rpc_method_handler(
            partial(self._serve, method) if method else partial(_unknown, name)
        )

    async def _serve(self, method: Method, _: AsyncIterator[bytes], context: Context) -> bytes:
        try:
            async with asyncio.timeout(context.time_remaining()):
                answer = await self._answer(method, context)
            if answer.http < 400:
                return transcode.answer(method, answer.body)
            status = errors.of_answer(answer.http, answer.body)
        except UnknownCaller as refused:
            status = errors.of_answer(*refused.answer)
        except TurnoutError as error:
            status = errors.of_error(error)
        except TimeoutError:
            status = errors.status(
                "DEADLINE_EXCEEDED", "the service did not answer before the caller's deadline"
            )
        return await _abort(context, status)

    async def _answer(self, method: Method, context: Context) -> Answer:
        ends = self._connections.ends(context.peer())
        if ends is None:
            raise asyncio.CancelledError
        authorization = _authorization(context)
        project = await self._callers.project(ends, authorization)
        self._connections.trust(context.peer())
        async with self._intake.slot(project) as slot:
            request = await slot.receive(lambda: _message(context))
            if len(request) > SMALL:
                call = await self._transcoding.run(project, transcode.call, method, request)
            else:
                call = transcode.call(method, request)
            del request
            return await self._rest.send(
                call, service_address(ends, self._setup), authorization, ends.client[0]
            )


async def _message(context: Context) -> bytes:
    message = await context.read()
    if not isinstance(message, bytes):
        raise Invalid("the call has no message")
    return message


def _authorization(context: Context) -> list[str]:
    """The authorization headers: the service uses no other metadata."""
    pairs = context.invocation_metadata() or ()
    # HTTP header values have no surrounding spaces.
    return [str(value).strip() for key, value in pairs if key == "authorization"]


async def _unknown(name: str, _: AsyncIterator[bytes], context: Context) -> bytes:
    status = errors.status("UNIMPLEMENTED", f"{name} is not supported; {_INSTEAD}", "METHOD_NOT_FOUND")
    return await _abort(context, status)


async def _abort(context: Context, status: errors.Status) -> bytes:
    details = ("grpc-status-details-bin", status.SerializeToString())
    return await context.abort(_STATUSES[status.code], status.message, (details,))
