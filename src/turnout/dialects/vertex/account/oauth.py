"""The token endpoint of service accounts: exchanges a signed JWT (RFC 7523) for an access token."""

from urllib.parse import parse_qsl

from starlette.responses import Response

from turnout.access import make_token
from turnout.access.google import check_assertion
from turnout.dialects import Context
from turnout.dialects.vertex import reply
from turnout.dialects.vertex.address import TOKEN
from turnout.errors import Unauthenticated

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
GOOGLE_AUDIENCES = ("https://oauth2.googleapis.com/token", "https://accounts.google.com/o/oauth2/token")
"""The audience that Google's libraries put into the JWT, whatever token endpoint the file names."""
TOKEN_SECONDS = 3600


def issue_token(context: Context, method: str, form: bytes, origin: str) -> Response:
    if method != "POST":
        return _error("invalid_request", f"POST a form here, with grant_type={GRANT}")
    form_fields = dict(parse_qsl(form.decode("latin-1")))
    if form_fields.get("grant_type") != GRANT:
        return _error("unsupported_grant_type", f"grant_type must be {GRANT}")
    if "assertion" not in form_fields:
        return _error("invalid_request", "assertion is missing: the JWT that the service account signed")
    now = context.clock() / 1e9
    try:
        key = (
            context.keys.root
            if context.settings.no_auth
            else check_assertion(
                context.keys, form_fields["assertion"], now, (*GOOGLE_AUDIENCES, origin + TOKEN)
            )
        )
    except Unauthenticated as error:
        return _error("invalid_grant", error.message)
    access = make_token(key, now, TOKEN_SECONDS)
    # A second less, so that the client requests another one before this one expires.
    return reply.json({"access_token": access, "expires_in": TOKEN_SECONDS - 1, "token_type": "Bearer"})


def _error(error: str, description: str) -> Response:
    return reply.json({"error": error, "error_description": description}, 400)
