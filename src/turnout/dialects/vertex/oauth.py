"""The token endpoint that a service account's file names: what an account signed (RFC 7523) for an access token."""

from urllib.parse import parse_qsl

from starlette.responses import Response

from turnout.access import make_token
from turnout.access.google import check_assertion
from turnout.dialects.vertex import reply
from turnout.dialects.vertex.address import TOKEN
from turnout.dialects.vertex.house import House
from turnout.errors import Unauthenticated

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
GOOGLES_OWN = ("https://oauth2.googleapis.com/token", "https://accounts.google.com/o/oauth2/token")
"""What Google's libraries sign for, wherever the file sends them."""
SECONDS = 3600


def token(house: House, method: str, form: bytes, origin: str) -> Response:
    if method != "POST":
        return _refused("invalid_request", f"POST a form here, with grant_type={GRANT}")
    given = dict(parse_qsl(form.decode("latin-1")))
    if given.get("grant_type") != GRANT:
        return _refused("unsupported_grant_type", f"grant_type must be {GRANT}")
    if "assertion" not in given:
        return _refused("invalid_request", "assertion is missing: what the service account signed")
    now = house.clock() / 1e9
    try:
        key = (
            house.keys.root
            if house.settings.no_auth
            else check_assertion(house.keys, given["assertion"], now, (*GOOGLES_OWN, origin + TOKEN))
        )
    except Unauthenticated as error:
        return _refused("invalid_grant", error.message)
    access = make_token(key, now, SECONDS)
    # A second less, so that the client asks for another before this one is refused.
    return reply.json({"access_token": access, "expires_in": SECONDS - 1, "token_type": "Bearer"})


def _refused(error: str, description: str) -> Response:
    return reply.json({"error": error, "error_description": description}, 400)
