"""Our errors as ModelArts' answers: a status, a code, a message, and what to do about it."""

import logging

from starlette.responses import Response

from turnout import errors
from turnout.dialects.modelarts import reply
from turnout.errors import TurnoutError

log = logging.getLogger(__name__)

BAD_SIGNATURE = "APIGW.0301"
SKEWED = "APIGW.0303"
REQUEST_TOO_LARGE = "APIGW.0201"
NO_SUCH_WORKSPACE = "ModelArts.0102"
WORKSPACE_EXISTS = "ModelArts.0107"
NO_PERMISSION = "ModelArts.0108"
WRONG_PROJECT = "ModelArts.0210"
JOB_EXISTS = "ModelArts.2751"
NO_SUCH_ALGORITHM = "ModelArts.2755"
BAD_QUERY = "ModelArts.2764"
NO_SUCH_JOB = "ModelArts.2775"
BAD_TOKEN = "ModelArts.2784"
BAD_JSON = "ModelArts.2787"
INVALID = "ModelArts.2788"
UNSUPPORTED_SORT = "ModelArts.2790"
BAD_OBS_PATH = "ModelArts.2791"
NOT_STOPPABLE = "ModelArts.2796"
BAD_METHOD = "ModelArts.2803"
WORKSPACE_IN_USE = "ModelArts.2891"
BAD_ACTION = "ModelArts.2812"
OVER_QUOTA = "ModelArts.2815"
ALGORITHM_EXISTS = "ModelArts.2821"
NO_SUCH_PATH = "ModelArts.2836"
NO_LOG_PATH = "ModelArts.2822"
EXPERIMENT_EXISTS = "ModelArts.2841"
NO_SUCH_EXPERIMENT = "ModelArts.2842"
UNSUPPORTED = "ModelArts.2858"
NO_SUCH_FLAVOR = "ModelArts.2781"
NO_SUCH_POOL = "ModelArts.2890"
STATE_CHANGED = "ModelArts.2878"
NOT_DEBUG = "ModelArts.2879"
INTERNAL = "ModelArts.2950"
STORE_TROUBLE = "ModelArts.2952"

_CODES: dict[type[TurnoutError], str] = {
    errors.Invalid: INVALID,
    errors.TooLarge: REQUEST_TOO_LARGE,
    errors.Unauthenticated: BAD_SIGNATURE,
    errors.Denied: NO_PERMISSION,
    errors.NotFound: NO_SUCH_JOB,
    errors.AlreadyExists: JOB_EXISTS,
    errors.WrongState: NOT_STOPPABLE,
    errors.Unavailable: OVER_QUOTA,
    errors.Unsupported: UNSUPPORTED,
    errors.TimedOut: STORE_TROUBLE,
    TurnoutError: INTERNAL,
}

_STATUS: dict[str, int] = {
    BAD_SIGNATURE: 401,
    SKEWED: 401,
    REQUEST_TOO_LARGE: 413,
    "ModelArts.0201": 401,
    "ModelArts.0202": 401,
    "ModelArts.0205": 401,
    NO_PERMISSION: 403,
    WRONG_PROJECT: 403,
    BAD_TOKEN: 403,
    "ModelArts.2785": 403,
    "ModelArts.2786": 404,
    NOT_STOPPABLE: 409,
    "ModelArts.2799": 429,
    BAD_METHOD: 405,
    "ModelArts.2813": 409,
    NO_SUCH_PATH: 404,
    STATE_CHANGED: 409,
    NO_SUCH_POOL: 404,
    **{f"ModelArts.{code}": 500 for code in range(2950, 2960)},
}
"""All others are 400, also what is not found: clients tell it by the code."""

_SOLUTIONS: dict[str, str] = {
    BAD_SIGNATURE: "Check the access key, the secret key and what stands between the client and this server.",
    SKEWED: "Set the clock of the client's machine.",
    REQUEST_TOO_LARGE: "Send less in one request.",
    NO_SUCH_WORKSPACE: "List the workspaces and use the id of one of them; the default one is 0.",
    NO_PERMISSION: "Use a key of a project that owns it.",
    WRONG_PROJECT: "Use the id of the project that the key or token belongs to.",
    JOB_EXISTS: "Choose another name, or delete the job that has it.",
    NO_SUCH_ALGORITHM: "List the algorithms and use the id of one of them.",
    NO_SUCH_JOB: "List the training jobs and use the id of one of them.",
    BAD_TOKEN: "Ask for a new token with POST /v3/auth/tokens.",
    BAD_JSON: "Send a body of JSON in UTF-8.",
    NOT_STOPPABLE: "Only a job that is being created, waits or runs can be stopped.",
    BAD_METHOD: "Use a method that this address has.",
    BAD_ACTION: "Use the action_type terminate.",
    OVER_QUOTA: "Ask for less, or for what the message says is there.",
    ALGORITHM_EXISTS: "Choose another name, or delete the algorithm that has it.",
    NO_SUCH_PATH: "Check the address against the API reference.",
    NO_LOG_PATH: "Give the job a spec.log_export_path.obs_url.",
    EXPERIMENT_EXISTS: "Choose another name, or use the experiment that has it.",
    NO_SUCH_EXPERIMENT: "List the training experiments and use the id of one of them.",
    UNSUPPORTED: "Do without it here.",
    NOT_DEBUG: "Only jobs of the runtime_type debug keep their container.",
    INTERNAL: "Look into the server's log for this request id.",
    STORE_TROUBLE: "Send the request again.",
}
_SOLUTION = "Correct what the message names and send the request again."


def code_of(error: TurnoutError) -> str:
    if error.code:
        return error.code
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def answer(error: TurnoutError) -> Response:
    code = code_of(error)
    return refusal(code, error.message)


def refusal(code: str, message: str) -> Response:
    """All three keys always: without one of the first two the SDK makes a code of the status."""
    solution = _SOLUTIONS.get(code, _SOLUTION)
    body = {"error_msg": message, "error_code": code, "error_solution": solution}
    return reply.json(body, _STATUS.get(code, 400))


def unexpected(request_id: str, what: str, error: Exception) -> Response:
    log.error("request %s (%s) failed", request_id, what, exc_info=error)
    return refusal(
        INTERNAL, "An internal error occurred; the server's log has the details under this request id."
    )
