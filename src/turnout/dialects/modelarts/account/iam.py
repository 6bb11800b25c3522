"""The little of IAM that clients need before they can speak: password tokens, temporary keys, which project."""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.access import Key, Keys, check_session_token, make_session_token, may_use
from turnout.dialects.modelarts import body, reply, sign
from turnout.dialects.modelarts.errors import BAD_SIGNATURE, BAD_TOKEN, INVALID, WRONG_PROJECT
from turnout.dialects.modelarts.house import House, Routes
from turnout.errors import Denied, Invalid, Unauthenticated
from turnout.service import Caller

TOKEN_SECONDS = 24 * 3600
TEMPORARY_SECONDS = (900, 24 * 3600)
"""The shortest and the longest life of temporary keys; without a wish they get the shortest."""


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


def caller_of(keys: Keys, request: sign.Signed, project: str, now: float) -> Caller:
    """Whoever sent the request, in the project that it names, or in their own if it names none."""
    token = request.headers.get(b"x-auth-token", b"").decode("latin-1").strip()
    temporary = request.headers.get(b"x-security-token", b"").decode("latin-1").strip()
    if token:
        key, own = _from_token(keys, token, now)
    elif temporary:
        key, own = _from_token(keys, temporary, now)
        made = _temporary_key(key, own, temporary)
        sign.verify(lambda access: made if access == made.id else None, request, now)
    else:
        key = sign.verify(keys.find, request, now)
        if not project or key.project == project:
            return Caller(key.id, key.project, key.root)
        return Caller(key.id, allowed(key, project), key.root)
    if project and project != own:
        raise Denied(
            f"The token belongs to the project {own!r}, not to {project!r}.",
            field="project_id",
            code=WRONG_PROJECT,
        )
    return Caller(key.id, own, key.root)


def allowed(key: Key, project: str) -> str:
    """The project, if the key may use it. Raises Denied."""
    try:
        may_use(key, project)
    except Denied as error:
        raise Denied(error.message, field="project_id", code=WRONG_PROJECT) from None
    return project


def known(keys: Keys, headers: sign.Headers) -> bool:
    """Whether the head of a request names somebody, so that it is worth reading a large body for."""
    return bool(headers.get(b"x-auth-token") or headers.get(b"x-security-token")) or (
        keys.find(sign.access_of(headers)) is not None
    )


async def login(house: House, request: Request) -> Response:
    """A token for a user name, which is a key's id, and its password, which is the secret. The domain may be any."""
    document = (await body.read(request, _Login)).auth
    password = document.identity.password
    if "password" not in document.identity.methods or password is None:
        raise Invalid(
            'auth.identity.methods must be ["password"], with auth.identity.password beside it.',
            field="auth.identity.methods",
            code=INVALID,
        )
    # Without auth everybody is root here too.
    no_auth = house.settings.no_auth
    key = house.keys.root if no_auth else house.keys.find(password.user.name)
    secret = key.secret if key else ""
    matches = hmac.compare_digest(secret.encode(), password.user.password.encode("utf-8", "surrogatepass"))
    if key is None or not (matches or no_auth):
        raise Unauthenticated(
            "The username or password is wrong: the name is a key's id, the password its secret.",
            code=BAD_SIGNATURE,
        )
    asked = document.scope.project if document.scope else None
    # A name is the region's as a rule; which project that is, is the key's affair.
    project = allowed(key, asked.id) if asked and asked.id else key.project
    now = house.clock() / 1e9
    token = make_session_token(key, project, now, TOKEN_SECONDS)
    shown = _token_document(key, project, asked.name if asked else "", password.user.domain, now)
    return reply.json({"token": shown}, 201, {"X-Subject-Token": token})


async def projects(house: House, request: Request, caller: Caller) -> Response:
    """Exactly one, under whatever name it is asked for: clients look up the project of a region here."""
    name = body.query_text(request, "name", caller.project)
    found = {"id": caller.project, "name": name, "domain_id": "", "parent_id": "", "description": ""}
    shown: dict[str, Any] = {"projects": [found | {"enabled": True, "is_domain": False}], "links": {}}
    return reply.json(shown)


async def security_tokens(house: House, request: Request, caller: Caller) -> Response:
    """An access key, a secret and a security token that end together."""
    asked = (await body.read(request, _Login)).auth.identity.token
    seconds = (asked.duration_seconds if asked else None) or TEMPORARY_SECONDS[0]
    if not TEMPORARY_SECONDS[0] <= seconds <= TEMPORARY_SECONDS[1]:
        raise Invalid(
            f"auth.identity.token.duration_seconds must be from {TEMPORARY_SECONDS[0]} to {TEMPORARY_SECONDS[1]}.",
            field="auth.identity.token.duration_seconds",
            code=INVALID,
        )
    key = house.keys.find(caller.key)
    if key is None:
        raise Unauthenticated("There is no such key any more.", code=BAD_SIGNATURE)
    now = house.clock() / 1e9
    token = make_session_token(key, caller.project, now, seconds)
    made = _temporary_key(key, caller.project, token)
    shown = {
        "access": made.id,
        "secret": made.secret,
        "securitytoken": token,
        "expires_at": _time(now + seconds),
    }
    return reply.json({"credential": shown}, 201)


ROUTES: Routes = [
    ("GET", "/v3/projects", projects),
    ("POST", "/v3.0/OS-CREDENTIAL/securitytokens", security_tokens),
]


def _from_token(keys: Keys, token: str, now: float) -> tuple[Key, str]:
    try:
        return check_session_token(keys, token, now)
    except Unauthenticated as error:
        raise Unauthenticated(f"The token is not valid: {error.message}.", code=BAD_TOKEN) from None


def _temporary_key(key: Key, project: str, token: str) -> Key:
    """Made of the token alone, so nothing is kept: who has no secret of ours cannot make one."""
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
