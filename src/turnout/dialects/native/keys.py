"""The keys of projects, for root: GET and POST `/turnout/v1/keys`, DELETE `/turnout/v1/keys/<id>`."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.access import Key, Keys
from turnout.access.google import account_of, read_public_key
from turnout.dialects.native.guard import Guard
from turnout.errors import Denied, Invalid
from turnout.service import Caller


class NewKey(msgspec.Struct, forbid_unknown_fields=True):
    project: str
    label: str = ""
    public_key: str = ""
    """PEM. Makes it a key for Google's libraries, that of a service account: it has no secret."""


class AccountDocument(msgspec.Struct):
    """What a service account's file says of it."""

    client_email: str
    client_id: str
    private_key_id: str


class KeyDocument(msgspec.Struct):
    id: str
    project: str
    root: bool
    label: str
    created: int | None
    """None: with the service itself."""
    secret: str | msgspec.UnsetType = msgspec.UNSET
    """Shown when the key is made, and never again."""
    account: AccountDocument | msgspec.UnsetType = msgspec.UNSET


def key_routes(keys: Keys, guarded: Guard) -> list[Route]:
    calls = _Calls(keys)
    return [
        Route("/turnout/v1/keys", guarded(calls.list), methods=["GET"]),
        Route("/turnout/v1/keys", guarded(calls.create), methods=["POST"]),
        Route("/turnout/v1/keys/{id}", guarded(calls.revoke), methods=["DELETE"]),
    ]


class _Calls:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def list(self, request: Request, caller: Caller) -> Response:
        _check_root(caller)
        return _json({"keys": [_document(key) for key in self._keys.all()]})

    async def create(self, request: Request, caller: Caller) -> Response:
        _check_root(caller)
        try:
            wanted = msgspec.json.decode(await request.body(), type=NewKey)
        except msgspec.DecodeError as error:
            raise Invalid(f'send {{"project": "<name>", "label": "<for people>"}}: {error}') from None
        if wanted.public_key:
            public = await asyncio.to_thread(read_public_key, wanted.public_key)
            return _json(_document(await self._keys.create(wanted.project, wanted.label, public)), 201)
        key = await self._keys.create(wanted.project, wanted.label)
        return _json(msgspec.structs.replace(_document(key), secret=key.secret), 201)

    async def revoke(self, request: Request, caller: Caller) -> Response:
        _check_root(caller)
        await self._keys.revoke(request.path_params["id"])
        return _json({})


def _check_root(caller: Caller) -> None:
    if not caller.root:
        raise Denied("only the root key may look at keys, make them and revoke them")


def _document(key: Key) -> KeyDocument:
    shown = KeyDocument(key.id, key.project, key.root, key.label, key.created or None)
    if not key.public:
        return shown
    account = account_of(key)
    return msgspec.structs.replace(
        shown, account=AccountDocument(account.email, account.client_id, account.key_id)
    )


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
