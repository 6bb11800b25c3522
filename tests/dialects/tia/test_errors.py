"""Our errors as TI-A's codes."""

import pytest
from tencentcloud.tia.v20180226 import errorcodes

from turnout import errors as ours
from turnout.dialects.tia import errors
from turnout.engines import Unreachable

KINDS = [
    kind for kind in vars(ours).values() if isinstance(kind, type) and issubclass(kind, ours.TurnoutError)
]
ABOUT_THE_REQUEST = (ours.Busy, ours.TooLarge, ours.Unauthenticated)


@pytest.mark.parametrize("action", errors.ACTION_CODES)
@pytest.mark.parametrize("kind", [*KINDS, Unreachable], ids=lambda kind: kind.__name__)
def test_an_action_answers_only_what_its_table_has(kind: type[ours.TurnoutError], action: str):
    code = errors.code_of(kind("what was wrong"), action)
    allowed = errors.COMMON_CODES if issubclass(kind, ABOUT_THE_REQUEST) else errors.ACTION_CODES[action]
    assert code in allowed


def test_the_tables_have_codes_that_the_sdk_knows():
    known = {value for name, value in vars(errorcodes).items() if name.isupper()}
    assert set().union(*errors.ACTION_CODES.values()) <= known


@pytest.mark.parametrize(
    ("kind", "action", "code"),
    [
        (ours.Invalid, "CreateJob", "InvalidParameter"),
        (ours.AlreadyExists, "CreateJob", "FailedOperation.AlreadyExists"),
        (ours.NotFound, "DescribeJob", "ResourceNotFound"),
        (ours.NotFound, "CreateJob", "ResourceUnavailable"),
        (ours.Unavailable, "CreateJob", "ResourceUnavailable"),
        (ours.Unavailable, "ListJobs", "ResourceNotFound"),
        (ours.Denied, "CreateJob", "UnauthorizedOperation"),
        (ours.Denied, "DeleteJob", "ResourceNotFound"),
        (ours.TimedOut, "QueryLogs", "FailedOperation.TimeOut"),
        (ours.TimedOut, "DeleteJob", "InternalError"),
        (ours.NotStored, "CreateJob", "InternalError"),
        (ours.Misconfigured, "CreateJob", "InternalError"),
        (ours.Busy, "QueryLogs", "RequestLimitExceeded"),
        (ours.TooLarge, "", "RequestSizeLimitExceeded"),
    ],
)
def test_which_code(kind: type[ours.TurnoutError], action: str, code: str):
    assert errors.code_of(kind("what was wrong"), action) == code


def test_an_errors_own_code_wins_where_the_action_has_it():
    old = ours.Unsupported("the cluster is too old", code="UnsupportedOperation.UnsupportedVersion")
    assert errors.code_of(old, "CreateJob") == "UnsupportedOperation.UnsupportedVersion"
    assert errors.code_of(old, "DeleteJob") == "InvalidParameter"
