"""Batch requests: the parts of a `multipart/mixed` body are HTTP requests, and those of the answer are responses."""

import re
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message

from turnout import errors, pools
from turnout.bodies import Bodies, known, read_body
from turnout.gateways.gcs import errors as error_responses
from turnout.gateways.gcs.multipart import boundary

_MAX_BODY = 10 << 20
_MAX_CALLS = 1000
_MAX_REPLIES = 16 << 20
"""The most bytes of all responses together. Calls beyond that are refused."""
_MAX_HEAD = 64 << 10
"""The most bytes before the body of one call."""
_SMALL = 64 << 10
"""A body up to this size is parsed on the event loop."""

_BLANK = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"--|[ \t]*\r?\n")
_REQUEST_LINE = re.compile(rb"([A-Z]{1,10}) (\S{1,16000}) HTTP/1\.[01]")

Send = Callable[[Request], Awaitable[Response]]


class _BatchPart(NamedTuple):
    content_id: str
    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


async def answer(bodies: Bodies, request: Request, project: str, send: Send) -> Response:
    """`send` carries out one call. Its errors become the response of that call. Raises Invalid."""
    limit = boundary(request.headers.get("content-type", ""))
    with bodies.open(known(project)) as reservation:
        body = await read_body(
            reservation,
            dict(request.scope["headers"]),
            request.receive,
            _MAX_BODY,
            too_large="a batch may have {limit} bytes",
        )
        if body is None:
            raise ClientDisconnect
        if len(body) <= _SMALL:
            parts = _split(body, limit)
        else:
            parts = await pools.logs.run(project, _split, body, limit)
        replies: list[tuple[str, Response]] = []
        size = 0
        for number, part in enumerate(parts):
            reply = await _carry_out(request, part, send) if size < _MAX_REPLIES else _too_long(number)
            size += len(reply.body)
            replies.append((part.content_id, reply))
    return _joined(replies)


def _split(body: bytes, limit: bytes) -> list[_BatchPart]:
    """Every search in a large body is a short one: other threads run in between."""
    pieces = _at_boundaries(body, b"--" + limit)
    if len(pieces) < 3 or pieces[0].strip() or not pieces[-1].startswith(b"--"):
        raise errors.Invalid(
            "the body of a batch must be parts between the boundaries that Content-Type names"
        )
    if len(pieces) - 2 > _MAX_CALLS:
        raise errors.Invalid(f"a batch may have {_MAX_CALLS} calls")
    return [_part(piece) for piece in pieces[1:-1]]


def _at_boundaries(body: bytes, boundary: bytes) -> list[bytes]:
    """The texts between the lines that begin with the boundary."""
    first, *rest = body.split(boundary, 2 * _MAX_CALLS)
    pieces = [[first]]
    begins_line = not first or first.endswith(b"\n")
    for text in rest:
        if begins_line and _LINE_END.match(text, 0, _MAX_HEAD):
            pieces[-1][-1] = pieces[-1][-1].removesuffix(b"\n").removesuffix(b"\r")
            pieces.append([text])
        else:
            pieces[-1] += boundary, text
        begins_line = text.endswith(b"\n")
    return [b"".join(one) for one in pieces]


def _after_blank(text: bytes) -> tuple[bytes, bytes]:
    """What is before and after the first blank line."""
    found = _BLANK.search(text, 0, _MAX_HEAD)
    if found is None and len(text) > _MAX_HEAD:
        raise errors.Invalid(f"the headers in a part of a batch may have {_MAX_HEAD} bytes")
    return (text[: found.start()], text[found.end() :]) if found else (text, b"")


def _part(piece: bytes) -> _BatchPart:
    outer, rest = _after_blank(piece)
    head, body = _after_blank(rest.lstrip(b"\r\n"))
    first, *lines = re.split(rb"\r?\n", head)
    line = _REQUEST_LINE.fullmatch(first.strip())
    if line is None:
        raise errors.Invalid("a part of a batch must be an HTTP request: DELETE /storage/v1/b/… HTTP/1.1")
    return _BatchPart(
        dict(_headers(re.split(rb"\r?\n", outer))).get(b"content-id", b"").decode("latin-1"),
        line[1].decode(),
        line[2].decode("latin-1"),
        _headers(lines),
        body,
    )


def _headers(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    pairs = (line.partition(b":") for line in lines if b":" in line)
    return [(name.strip().lower(), value.strip()) for name, _, value in pairs]


async def _carry_out(request: Request, part: _BatchPart, send: Send) -> Response:
    try:
        return await send(_inner_request(request, part))
    except errors.TurnoutError as error:
        return error_responses.response(error)
    except Exception as error:  # noqa: BLE001 (one call must not affect the others)
        return error_responses.unexpected(request, error)


def _inner_request(request: Request, part: _BatchPart) -> Request:
    """The headers of the batch apply to each call, except those about the body and those that the call sets itself."""
    try:
        target = urlsplit(part.target)
    except ValueError:
        raise errors.Invalid(f"{part.target[:100]!r} is not an address") from None
    own = {name: value for name, value in part.headers if name != b"host"}
    own[b"content-length"] = str(len(part.body)).encode()
    common = [
        (name, value)
        for name, value in request.scope["headers"]
        if not name.startswith((b"content-", b"transfer-")) and name not in own
    ]
    scope = {
        **request.scope,
        "method": part.method,
        "path": unquote(target.path),
        "raw_path": target.path.encode("latin-1", "replace"),
        "query_string": target.query.encode("latin-1", "replace"),
        "headers": [*common, *own.items()],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": part.body, "more_body": False}

    return Request(scope, receive)


def _too_long(number: int) -> Response:
    message = (
        f"the responses to the first {number} calls reach the size limit: send the others in another batch"
    )
    return error_responses.response(errors.Busy(message))


def _joined(replies: list[tuple[str, Response]]) -> Response:
    limit = f"batch_{secrets.token_hex(16)}"
    text: list[bytes] = []
    for content_id, reply in replies:
        named = f"Content-ID: {_response_id(content_id)}\r\n" if content_id else ""
        status = f"HTTP/1.1 {reply.status_code} {HTTPStatus(reply.status_code).phrase}"
        headers = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        head = f"--{limit}\r\nContent-Type: application/http\r\n{named}\r\n{status}\r\n{headers}\r\n"
        text += [head.encode("latin-1", "replace"), bytes(reply.body), b"\r\n"]
    text.append(f"--{limit}--\r\n".encode())
    return Response(b"".join(text), media_type=f"multipart/mixed; boundary={limit}")


def _response_id(content_id: str) -> str:
    """`<x>` as `<response-x>`, which clients look for."""
    return f"<response-{content_id[1:]}" if content_id.startswith("<") else f"response-{content_id}"
