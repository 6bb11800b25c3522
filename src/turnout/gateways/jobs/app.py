"""The application for programs inside jobs.

In a gang's own network the connection says which job it is. Elsewhere a request is a job's if it is signed with the
job's key or has the job's token; the address of the metadata server contains a secret of the job.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.access.job_keys import SCOPE, JobKeys
from turnout.gateways import gcs
from turnout.gateways.jobs import metadata
from turnout.job import Attempt
from turnout.service import calls

PREFIX = "/job-metadata/"
"""Of the metadata server's address where a gang has no network of its own. A secret of the job follows."""

_ADDRESS = "turnout.address"
"""The secret, in the scope of a request. It is taken out of the path, so that no log can have it."""
_JOB_KEY = rb"JOB[0-9]{1,19}A[0-9]{1,9}\b"
_SIGNED = re.compile(rb"(?:AWS4-HMAC-SHA256 +Credential=|AWS |OBS |.*\bq-ak=)" + _JOB_KEY)
_PRESIGNED = re.compile(rb"(?:^|&)(?:X-Amz-Credential|AWSAccessKeyId|AccessKeyId|q-ak)=" + _JOB_KEY)
_TOKEN = re.compile(rb"bearer +tj1\.", re.IGNORECASE)
_S3_APPS = 256

MakeS3 = Callable[[Attempt | None], ASGIApp]


class JobGateway:
    """`rest` serves GCS. `make_s3` makes the application of S3, OBS and COS for one attempt, or for all."""

    def __init__(self, jobs: JobKeys, rest: ASGIApp, make_s3: MakeS3) -> None:
        self._jobs = jobs
        self._rest = rest
        self._s3_of = lru_cache(_S3_APPS)(make_s3)

    def enter(self, scope: Scope) -> Scope | None:
        """The scope with which to call the gateway, if a request to the service's own port is a job's."""
        if scope["type"] != "http":
            return None
        if scope["path"].startswith((PREFIX, metadata.PREFIX)):
            address, slash, path = scope["path"].removeprefix(PREFIX).partition("/")
            return {**scope, "path": slash + path, "raw_path": (slash + path).encode(), _ADDRESS: address}
        authorization = _authorization(scope)
        if _SIGNED.match(authorization) or _TOKEN.match(authorization):
            return scope
        return scope if _PRESIGNED.search(scope["query_string"]) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        attempt: Attempt | None = scope.get(SCOPE)
        if _ADDRESS in scope:
            attempt = self._jobs.at_address(scope[_ADDRESS])
            if attempt is None:
                await PlainTextResponse("this is not the address of a running job\n", 403)(
                    scope, receive, send
                )
                return
        if attempt and (_ADDRESS in scope or metadata.owns(scope)):
            await metadata.answer(Request(scope), self._jobs, attempt)(scope, receive, send)
        elif _is_google(scope, attempt):
            calls.serve_by("gcs")
            await self._rest(scope, receive, send)
        else:
            calls.serve_by("s3")
            await self._s3_of(attempt)(scope, receive, send)


def _is_google(scope: Scope, attempt: Attempt | None) -> bool:
    """A bucket may be called `storage` or `upload`: the paths are those of Google unless S3's clients signed them.

    Only a gang's own network stands for a token. Where it does not, the routes of Google could take a request for one
    of the operator, who needs none with --no-auth.
    """
    if _TOKEN.match(_authorization(scope)):
        return True
    return attempt is not None and scope["path"].startswith(gcs.PREFIXES) and not _is_signed_as_s3(scope)


def _is_signed_as_s3(scope: Scope) -> bool:
    authorization = _authorization(scope)
    return bool(authorization and not authorization.lower().startswith(b"bearer "))


def _authorization(scope: Scope) -> bytes:
    return next((value for name, value in scope["headers"] if name == b"authorization"), b"")
