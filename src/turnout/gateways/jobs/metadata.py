"""A metadata server like that of Google's machines: Google's clients get the token of their job here."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Scope

from turnout.access.job_keys import JobKeys
from turnout.job import Attempt

PREFIX = "/computeMetadata/"
_FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
_ROOT = "/computeMetadata/v1"
_SCOPES = (
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/devstorage.full_control",
)
_TOKEN_SECONDS = 3600
"""The token is valid until its job ends. Clients ask again after this time, and get the same one."""

Tree = dict[str, "Tree | str"]


class _Identity(NamedTuple):
    attempt: Attempt
    project: str

    @property
    def email(self) -> str:
        return f"job-{self.attempt.job}@{self.project}.iam.gserviceaccount.com"


def owns(scope: Scope) -> bool:
    path = scope["path"]
    return path.startswith(PREFIX) or (path == "/" and _asks_for_google(scope))


def answer(request: Request, jobs: JobKeys, attempt: Attempt) -> Response:
    """`attempt`: the one that asks."""
    project = jobs.project(attempt)
    if not project:
        return _text("the job has ended", 403)
    if request.method not in ("GET", "HEAD"):
        return _text("only GET is allowed", 405)
    path = request.url.path
    if path == "/":  # a client looks whether there is a metadata server at all
        return _text("computeMetadata/\n")
    if not _asks_for_google(request.scope):
        return _text("send the header Metadata-Flavor: Google", 403)
    if "x-forwarded-for" in request.headers:
        return _text("the metadata server does not answer forwarded requests", 403)
    name = path.removeprefix(_ROOT).strip("/")
    if name.rpartition("/")[2] == "token" and name.startswith("instance/service-accounts/"):
        return _token(jobs, attempt, name, _Identity(attempt, project))
    found: Tree | str = _tree(_Identity(attempt, project))
    for part in name.split("/") if name else ():
        if not isinstance(found, dict) or part not in found:
            return _text(f"there is no {path} here", 404)
        found = found[part]
    if isinstance(found, str):
        return _text(found)
    if request.query_params.get("recursive", "").lower() == "true":
        return JSONResponse(_documents(found), headers=_FLAVOR)
    return _text(
        "".join(f"{name}{'/' if isinstance(value, dict) else ''}\n" for name, value in found.items())
    )


def _asks_for_google(scope: Scope) -> bool:
    return (b"metadata-flavor", b"Google") in scope["headers"]


def _token(jobs: JobKeys, attempt: Attempt, name: str, identity: _Identity) -> Response:
    if name.split("/")[2] not in ("default", identity.email):
        return _text("there is no such service account", 404)
    document = {
        "access_token": jobs.make(attempt).token,
        "expires_in": _TOKEN_SECONDS,
        "token_type": "Bearer",
    }
    return JSONResponse(document, headers=_FLAVOR | {"Cache-Control": "no-store"})


def _tree(identity: _Identity) -> Tree:
    account: Tree = {"aliases": "default\n", "email": identity.email, "scopes": "\n".join(_SCOPES) + "\n"}
    zone = "projects/0/zones/us-central1-a"
    return {
        "instance": {
            "attributes": {},
            "hostname": f"job-{identity.attempt.job}",
            "id": str(identity.attempt.job),
            "name": f"job-{identity.attempt.job}",
            "region": "projects/0/regions/us-central1",
            "service-accounts": {"default": account, identity.email: account},
            "zone": zone,
        },
        "project": {"attributes": {}, "numeric-project-id": "0", "project-id": identity.project},
        "universe": {"universe-domain": "googleapis.com"},
    }


def _documents(tree: Tree) -> dict[str, object]:
    """As `?recursive=true` answers: names in camel case, lists for texts of several lines."""
    return {
        _camel(name): _documents(value) if isinstance(value, dict) else _value(value)
        for name, value in tree.items()
    }


def _value(text: str) -> object:
    return text.splitlines() if text.endswith("\n") else text


def _camel(name: str) -> str:
    first, *rest = name.split("-")
    return name if "@" in name else first + "".join(part.capitalize() for part in rest)


def _text(text: str, status: int = 200) -> Response:
    return PlainTextResponse(text, status, headers=_FLAVOR, media_type="application/text")
