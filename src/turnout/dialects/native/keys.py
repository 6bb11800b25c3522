"""The keys of projects, for root: GET and POST `/turnout/v1/keys`, DELETE `/turnout/v1/keys/<id>`."""

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from turnout import pools
from turnout.access import Key, Keys
from turnout.access.google import UNIVERSE, account_of, read_public_key
from turnout.bodies import Bodies, known, read_body
from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.errors import Denied, Invalid
from turnout.service import Caller, calls

_LARGEST_DOCUMENT = 64 << 10


class NewKey(msgspec.Struct, forbid_unknown_fields=True):
    project: str
    label: str = ""
    public_key: str = ""
    """PEM. With it the key belongs to a service account for Google's libraries and has no secret."""


class AccountDocument(msgspec.Struct):
    """The fields of a service account's file."""

    client_email: str
    client_id: str
    private_key_id: str
    universe_domain: str = UNIVERSE


class KeyDocument(msgspec.Struct):
    id: str
    project: str
    root: bool
    label: str
    created: int | None
    """None for the root key."""
    secret: str | msgspec.UnsetType = msgspec.UNSET
    """Only in the response that creates the key."""
    account: AccountDocument | msgspec.UnsetType = msgspec.UNSET


def key_routes(keys: Keys, bodies: Bodies, guarded: Guard) -> list[Route]:
    calls = _KeyHandlers(keys, bodies)
    return [
        Route("/turnout/v1/keys", guarded(calls.list), methods=["GET"]),
        Route("/turnout/v1/keys", guarded(calls.create), methods=["POST"]),
        Route("/turnout/v1/keys/{id}", guarded(calls.revoke), methods=["DELETE"]),
    ]


class _KeyHandlers:
    def __init__(self, keys: Keys, bodies: Bodies) -> None:
        self._keys = keys
        self._bodies = bodies

    async def list(self, request: Request, caller: Caller) -> Response:
        _check_root(caller)
        return reply.json({"keys": [_document(key) for key in self._keys.all()]})

    async def create(self, request: Request, caller: Caller) -> Response:
        _check_root(caller)
        with self._bodies.open(known(caller.project)) as reservation:
            body = await read_body(
                reservation, dict(request.scope["headers"]), request.receive, _LARGEST_DOCUMENT
            )
        if body is None:
            raise ClientDisconnect
        try:
            requested = msgspec.json.decode(body, type=NewKey)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Invalid(f'send {{"project": "<name>", "label": "<for people>"}}: {error}') from None
        if requested.public_key:
            public = await pools.service.run(pools.OWN, read_public_key, requested.public_key)
            key = await self._keys.create(requested.project, requested.label, public)
            calls.about(key.id)
            return reply.json(_document(key), 201)
        key = await self._keys.create(requested.project, requested.label)
        calls.about(key.id)
        return reply.json(msgspec.structs.replace(_document(key), secret=key.secret), 201)

    async def revoke(self, request: Request, caller: Caller) -> Response:
        _check_root(caller)
        calls.about(request.path_params["id"])
        await self._keys.revoke(request.path_params["id"])
        return reply.json({})


def _check_root(caller: Caller) -> None:
    if not caller.root:
        raise Denied("only the root key may list, create and revoke keys")


def _document(key: Key) -> KeyDocument:
    document = KeyDocument(key.id, key.project, key.root, key.label, key.created or None)
    if not key.public:
        return document
    account = account_of(key)
    return msgspec.structs.replace(
        document, account=AccountDocument(account.email, account.client_id, account.key_id)
    )
