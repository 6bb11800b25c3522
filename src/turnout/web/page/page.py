"""Serves the page: the index for every view's address, its files, and sign-in."""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from turnout.access import Keys, PageSessions
from turnout.web.page.files import PREFIX, File, PageFiles
from turnout.web.page.sign_in import SignIn

VIEWS = ("jobs", "searches", "cluster", "storage", "keys")
"""The first parts of the views' addresses."""
_FOR_EVER = "public, max-age=31536000, immutable"
_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}

Fallback = Callable[[Request], Awaitable[Response]]


class Page:
    """`fallback` answers requests that do not ask for HTML, and all others if the parts of the page are missing."""

    name = "web"

    def __init__(
        self, keys: Keys, sessions: PageSessions, no_auth: bool, files: PageFiles, fallback: Fallback
    ) -> None:
        self._fallback = fallback
        self._files = files
        sign_in = SignIn(keys, sessions, no_auth)
        self._app = Starlette(
            routes=[
                *sign_in.routes(),
                Route(PREFIX + "/{name:path}", self._file),
                Route("/{view:path}", self.home),
            ]
        )

    def owns(self, scope: Scope) -> bool:
        """Whether a request is for the page, except at `/`, which it shares with an API."""
        path: str = scope["path"]
        if path.startswith(PREFIX + "/"):
            return True
        first = path.partition("/")[2].partition("/")[0]
        # GCS has /storage/v1; only navigations of browsers ask for HTML.
        return (
            first in VIEWS
            and scope["method"] in ("GET", "HEAD")
            and not path.startswith("/storage/v1/")
            and any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def home(self, request: Request) -> Response:
        """The index for browsers. Its script shows the view of the address."""
        return await self._index(request) or await self._fallback(request)

    async def not_found(self, request: Request, error: Exception) -> Response:
        """For an address that nothing serves. A browser gets the index, whose script says so."""
        index = await self._index(request, 404) if request.method in ("GET", "HEAD") else None
        return index or PlainTextResponse("Not Found", 404)

    async def _index(self, request: Request, status: int = 200) -> Response | None:
        """None for requests that do not ask for HTML, and if the parts were not fetched."""
        if "text/html" not in request.headers.get("accept", "") or not (found := await self._files.get()):
            return None
        headers = {"Content-Security-Policy": found.policy, "Cache-Control": "no-cache"}
        return _respond(request, found.index, headers, status)

    async def _file(self, request: Request) -> Response:
        found = await self._files.get()
        file = found.by_name.get(request.path_params["name"]) if found else None
        if file is None:
            return Response(status_code=404)
        return _respond(request, file, {"Cache-Control": _FOR_EVER})


def _respond(request: Request, file: File, headers: dict[str, str], status: int = 200) -> Response:
    headers = _HEADERS | headers | {"Vary": "Accept-Encoding, Accept"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.unpacked(), status, headers, file.media_type)
    return Response(file.packed, status, headers | {"Content-Encoding": "gzip"}, file.media_type)
