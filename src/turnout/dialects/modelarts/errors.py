"""ModelArts' error codes, and the responses for our errors: a status, a code, a message and a solution."""

import logging

from starlette.responses import Response

from turnout import errors
from turnout.dialects.modelarts import reply
from turnout.errors import Invalid, TurnoutError
from turnout.service import calls

log = logging.getLogger(__name__)

BAD_SIGNATURE = "APIGW.0301"
SKEWED = "APIGW.0303"
REQUEST_TOO_LARGE = "APIGW.0201"
TOO_MANY = "APIGW.0308"
NO_SUCH_WORKSPACE = "ModelArts.0102"
WORKSPACE_EXISTS = "ModelArts.0107"
NO_PERMISSION = "ModelArts.0108"
WRONG_PROJECT = "ModelArts.0210"
JOB_EXISTS = "ModelArts.2751"
BAD_CHANNEL = "ModelArts.2753"
NO_SUCH_ALGORITHM = "ModelArts.2755"
BAD_CODE_DIR = "ModelArts.2757"
BAD_BOOT_FILE = "ModelArts.2758"
TOO_MANY_CODE_FILES = "ModelArts.2759"
CODE_TOO_DEEP = "ModelArts.2760"
CODE_TOO_LARGE = "ModelArts.2761"
UNSUITABLE_FLAVOR = "ModelArts.2763"
BAD_QUERY = "ModelArts.2764"
NOT_A_CHOICE = "ModelArts.2765"
NO_VALUE = "ModelArts.2766"
DUPLICATE_NAME = "ModelArts.2767"
DEFAULT_TYPE = "ModelArts.2768"
DEFAULT_RANGE = "ModelArts.2769"
BAD_RANGE = "ModelArts.2770"
OBS_DENIED = "ModelArts.2771"
OBS_UNREADABLE = "ModelArts.2773"
NO_SUCH_JOB = "ModelArts.2775"
NO_SUCH_ENGINE = "ModelArts.2780"
NO_SUCH_FLAVOR = "ModelArts.2781"
NO_SUCH_DATASET_VERSION = "ModelArts.2782"
NO_SUCH_DATASET = "ModelArts.2783"
BAD_TOKEN = "ModelArts.2784"
BAD_JSON = "ModelArts.2787"
INVALID = "ModelArts.2788"
BAD_FILTERS = "ModelArts.2789"
UNSUPPORTED_SORT = "ModelArts.2790"
BAD_OBS_PATH = "ModelArts.2791"
BOOT_FILE_OUTSIDE = "ModelArts.2792"
TOO_MANY_NODES = "ModelArts.2793"
NOT_STOPPABLE = "ModelArts.2796"
BAD_METHOD = "ModelArts.2803"
NO_COMMAND = "ModelArts.2806"
BAD_FILTER_KEY = "ModelArts.2807"
BAD_FILTER_OPERATOR = "ModelArts.2808"
BAD_FILTER_VALUE = "ModelArts.2809"
BAD_ACTION = "ModelArts.2812"
CONTRADICTS = "ModelArts.2814"
OVER_QUOTA = "ModelArts.2815"
"""Also a device that this machine does not have."""
OUT_OF_RANGE = "ModelArts.2816"
NO_LOG = "ModelArts.2818"
LOG_CLEARED = "ModelArts.2819"
ALGORITHM_EXISTS = "ModelArts.2821"
NO_LOG_PATH = "ModelArts.2822"
BAD_METRIC = "ModelArts.2824"
WRONG_TYPE = "ModelArts.2825"
BAD_SEARCH = "ModelArts.2826"
NO_ENGINE = "ModelArts.2830"
BAD_DATA_TYPE = "ModelArts.2834"
NO_SUCH_PATH = "ModelArts.2836"
ENGINE_FLAVOR_MISMATCH = "ModelArts.2840"
EXPERIMENT_EXISTS = "ModelArts.2841"
NO_SUCH_EXPERIMENT = "ModelArts.2842"
BAD_REMOTE = "ModelArts.2854"
USER_NOT_ALLOWED = "ModelArts.2855"
BAD_LOCAL_CODE_DIR = "ModelArts.2857"
UNSUPPORTED = "ModelArts.2858"
BAD_WORKING_DIR = "ModelArts.2859"
STATE_CHANGED = "ModelArts.2878"
NOT_DEBUG = "ModelArts.2879"
NO_SUCH_POOL = "ModelArts.2890"
WORKSPACE_IN_USE = "ModelArts.2891"
INTERNAL = "ModelArts.2950"
STORE_TROUBLE = "ModelArts.2952"
BAD_EVENT_QUERY = "ModelArts.50004000"

_CODES: dict[type[TurnoutError], str] = {
    errors.Invalid: INVALID,
    errors.TooLarge: REQUEST_TOO_LARGE,
    errors.Unauthenticated: BAD_SIGNATURE,
    errors.Denied: NO_PERMISSION,
    errors.NotFound: NO_SUCH_JOB,
    errors.AlreadyExists: JOB_EXISTS,
    errors.WrongState: NOT_STOPPABLE,
    errors.Unavailable: OVER_QUOTA,
    errors.OverQuota: OVER_QUOTA,
    errors.Unsupported: UNSUPPORTED,
    errors.Busy: TOO_MANY,
    errors.TimedOut: STORE_TROUBLE,
    errors.NotStored: STORE_TROUBLE,
    TurnoutError: INTERNAL,
}

_STATUS: dict[str, int] = {
    BAD_SIGNATURE: 401,
    SKEWED: 401,
    REQUEST_TOO_LARGE: 413,
    TOO_MANY: 429,
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
"""All other codes have status 400, those for missing resources too: clients look at the code."""

_SOLUTIONS: dict[str, str] = {
    BAD_SIGNATURE: "Check the access key and the secret key, and whether a proxy changes the request.",
    SKEWED: "Correct the clock of the client's machine.",
    REQUEST_TOO_LARGE: "Send less in one request.",
    TOO_MANY: "Send the request again a little later.",
    NO_SUCH_WORKSPACE: "List the workspaces and use the id of one of them; the default one is 0.",
    NO_PERMISSION: "Use a key of the project that owns it.",
    WRONG_PROJECT: "Use the id of the project that the key or token belongs to.",
    JOB_EXISTS: "Choose another name, or delete the job that has it.",
    NO_SUCH_ALGORITHM: "Check whether the training project information in the request is valid.",
    NO_SUCH_JOB: "List the training jobs and use the id of one of them.",
    BAD_TOKEN: "Ask for a new token with POST /v3/auth/tokens.",
    BAD_JSON: "Send a body of JSON in UTF-8.",
    NOT_STOPPABLE: "You can stop a job only while it is being created, waiting or running.",
    BAD_METHOD: "Use one of the methods that the message names.",
    BAD_ACTION: "Use the action_type terminate.",
    OVER_QUOTA: "Request less, or what the message names as available.",
    ALGORITHM_EXISTS: "Choose another name, or delete the algorithm that has it.",
    NO_SUCH_PATH: "Check the address against the API reference.",
    NO_LOG_PATH: "Set spec.log_export_path.obs_url in the job.",
    EXPERIMENT_EXISTS: "Choose another name, or use the experiment that has it.",
    NO_SUCH_EXPERIMENT: "List the training experiments and use the id of one of them.",
    UNSUPPORTED: "Leave it out: this service does not support it.",
    NOT_DEBUG: "Only jobs of the runtime_type debug keep their container.",
    INTERNAL: "Look for this request id in the server's log.",
    STORE_TROUBLE: "Send the request again.",
}
_SOLUTION = "Correct what the message names and send the request again."


def invalid(code: str, field: str, message: str) -> Invalid:
    """`message` continues the sentence that the field's name begins."""
    return Invalid(f"{field}{message}", field=field, code=code)


def quoted(value: object) -> str:
    """A wrong value for an error message, cut to 120 characters."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}…"


def code_of(error: TurnoutError) -> str:
    if error.code:
        return error.code
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def response(error: TurnoutError) -> Response:
    code = code_of(error)
    return error_response(code, error.message)


def error_response(code: str, message: str) -> Response:
    """Always has all three keys: without error_msg or error_code the SDK derives a code from the status."""
    calls.refused(code)
    solution = _SOLUTIONS.get(code, _SOLUTION)
    body = {"error_msg": message, "error_code": code, "error_solution": solution}
    return reply.json(body, _STATUS.get(code, 400))


def unexpected(request_id: str, call: str, error: Exception) -> Response:
    log.error("request %s (%s) failed", request_id, call, exc_info=error)
    return error_response(
        INTERNAL, "An internal error occurred; the server's log has the details under this request id."
    )
