"""The part of IAM that clients need: tokens for passwords, temporary keys, the project of a region."""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout import bodies
from turnout.access import Key, Keys, check_session_token, make_session_token, may_use
from turnout.bodies import Sender
from turnout.dialects.modelarts import fields, reply
from turnout.dialects.modelarts.account import sign
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import BAD_SIGNATURE, BAD_TOKEN, INVALID, WRONG_PROJECT
from turnout.errors import Denied, Invalid, Unauthenticated
from turnout.service import Caller

DOMAIN = "turnout"
TOKEN_SECONDS = 24 * 3600
TEMPORARY_SECONDS = (900, 24 * 3600)
"""The shortest and the longest lifetime of temporary keys. The shortest is the default."""


class _Domain(msgspec.Struct):
    name: str = ""
    id: str = ""


class _User(msgspec.Struct):
    name: str
    password: str
    domain: _Domain | None = None


class _Password(msgspec.Struct):
    user: _User


class _Token(msgspec.Struct):
    id: str = ""
    duration_seconds: int | None = None


class _Identity(msgspec.Struct):
    methods: list[str] = []
    password: _Password | None = None
    token: _Token | None = None


class _Scope(msgspec.Struct):
    project: _Domain | None = None
    domain: _Domain | None = None


class _Auth(msgspec.Struct):
    identity: _Identity
    scope: _Scope | None = None


class _Login(msgspec.Struct):
    auth: _Auth


def caller_of(keys: Keys, request: sign.SignedRequest, project: str, now: float) -> Caller:
    """Authenticates a request. The caller's project is the one in the address, or else that of the key or token."""
    token = request.headers.get(b"x-auth-token", b"").decode("latin-1").strip()
    temporary = request.headers.get(b"x-security-token", b"").decode("latin-1").strip()
    if token:
        key, token_project = _from_token(keys, token, now)
    elif temporary:
        key, token_project = _from_token(keys, temporary, now)
        temporary_key = _temporary_key(key, token_project, temporary)
        sign.verify(lambda key_id: temporary_key if key_id == temporary_key.id else None, request, now)
    else:
        key = sign.verify(keys.find, request, now)
        if not project or key.project == project:
            return Caller(key.id, key.project, key.root)
        return Caller(key.id, check_project(key, project), key.root)
    if project and project != token_project:
        raise Denied(
            f"The token belongs to the project {token_project!r}, not to {project!r}.",
            field="project_id",
            code=WRONG_PROJECT,
        )
    return Caller(key.id, token_project, key.root)


def check_project(key: Key, project: str) -> str:
    """Returns the project. Raises Denied if the key cannot use it."""
    try:
        may_use(key, project)
    except Denied as error:
        raise Denied(error.message, field="project_id", code=WRONG_PROJECT) from None
    return project


def sender(keys: Keys, headers: sign.Headers, now: float) -> Sender:
    """Identifies the sender by the headers alone, before the body is read. Raises Unauthenticated."""
    for name in (b"x-auth-token", b"x-security-token"):
        if token := headers.get(name, b"").decode("latin-1").strip():
            return bodies.known(_from_token(keys, token, now)[1])
    if not headers.get(b"authorization"):
        return bodies.STRANGER
    return bodies.claimed(sign.read_signature(keys.find, headers, now).key.id)


async def login(context: Context, request: Request) -> Response:
    """Creates a token. The user name is the id of a key, the password its secret. The domain is ignored."""
    document = (await fields.read(request, _Login)).auth
    password = document.identity.password
    if "password" not in document.identity.methods or password is None:
        raise Invalid(
            'auth.identity.methods must be ["password"], with auth.identity.password set.',
            field="auth.identity.methods",
            code=INVALID,
        )
    # Without authentication every caller is root.
    no_auth = context.settings.no_auth
    key = context.keys.root if no_auth else context.keys.find(password.user.name)
    secret = key.secret if key else ""
    matches = hmac.compare_digest(secret.encode(), password.user.password.encode("utf-8", "surrogatepass"))
    if key is None or not (matches or no_auth):
        raise Unauthenticated(
            "The username or password is wrong: the name is a key's id, the password its secret.",
            code=BAD_SIGNATURE,
        )
    requested = document.scope.project if document.scope else None
    # A project name is usually that of a region, and stands for the key's own project.
    project = check_project(key, requested.id) if requested and requested.id else key.project
    now = context.clock() / 1e9
    token = make_session_token(key, project, now, TOKEN_SECONDS)
    shown = _token_document(key, project, requested.name if requested else "", password.user.domain, now)
    return reply.json({"token": shown}, 201, {"X-Subject-Token": token})


async def projects(context: Context, request: Request, caller: Caller) -> Response:
    """Returns the caller's project under the requested name: clients look up the project of a region here."""
    name = fields.query_text(request.query_params, "name", caller.project)
    found = {"id": caller.project, "name": name, "domain_id": "", "parent_id": "", "description": ""}
    shown: dict[str, Any] = {"projects": [found | {"enabled": True, "is_domain": False}], "links": {}}
    return reply.json(shown)


async def domains(context: Context, request: Request, caller: Caller) -> Response:
    """The one domain (account) that all keys belong to: clients without a domain id look it up here."""
    found = {"id": DOMAIN, "name": DOMAIN, "description": "", "enabled": True, "links": {}}
    return reply.json({"domains": [found], "links": {}})


async def security_tokens(context: Context, request: Request, caller: Caller) -> Response:
    """Creates an access key, a secret and a security token with the same lifetime."""
    requested = (await fields.read(request, _Login)).auth.identity.token
    seconds = (requested.duration_seconds if requested else None) or TEMPORARY_SECONDS[0]
    if not TEMPORARY_SECONDS[0] <= seconds <= TEMPORARY_SECONDS[1]:
        raise Invalid(
            f"auth.identity.token.duration_seconds must be from {TEMPORARY_SECONDS[0]} to {TEMPORARY_SECONDS[1]}.",
            field="auth.identity.token.duration_seconds",
            code=INVALID,
        )
    key = context.keys.find(caller.key)
    if key is None:
        raise Unauthenticated("The key does not exist any more.", code=BAD_SIGNATURE)
    now = context.clock() / 1e9
    token = make_session_token(key, caller.project, now, seconds)
    temporary_key = _temporary_key(key, caller.project, token)
    shown = {
        "access": temporary_key.id,
        "secret": temporary_key.secret,
        "securitytoken": token,
        "expires_at": _time(now + seconds),
    }
    return reply.json({"credential": shown}, 201)


ROUTES: Routes = [
    ("GET", "/v3/projects", projects),
    ("GET", "/v3/auth/domains", domains),
    ("POST", "/v3.0/OS-CREDENTIAL/securitytokens", security_tokens),
]


def _from_token(keys: Keys, token: str, now: float) -> tuple[Key, str]:
    try:
        return check_session_token(keys, token, now)
    except Unauthenticated as error:
        raise Unauthenticated(f"X-Auth-Token: {error.message}.", code=BAD_TOKEN) from None


def _temporary_key(key: Key, project: str, token: str) -> Key:
    """Derived from the token and the key's secret, so that it need not be stored."""
    name = hashlib.sha256(token.encode()).hexdigest()[:17].upper()
    secret = hmac.new(key.secret.encode(), f"turnout-temporary:{token}".encode(), hashlib.sha256).hexdigest()
    return Key(f"TMP{name}", secret, project)


def _token_document(key: Key, project: str, name: str, domain: _Domain | None, now: float) -> dict[str, Any]:
    shown = {"name": domain.name if domain else "", "id": domain.id if domain else ""}
    return {
        "methods": ["password"],
        "issued_at": _time(now),
        "expires_at": _time(now + TOKEN_SECONDS),
        "user": {"id": key.id, "name": key.id, "domain": shown, "password_expires_at": ""},
        "project": {"id": project, "name": name or project, "domain": shown},
        "roles": [],
        "catalog": [],
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
