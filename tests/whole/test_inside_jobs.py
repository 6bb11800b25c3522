"""A job has no rights at its own service: it is not root with --no-auth, and needs a token without it."""

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from tests.ordinary import run_as_nobody
from tests.running import python_path, reachable_directory

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """The responses to an ordinary user and to the user's jobs, without a token."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    nobody = pwd.getpwnam("nobody")
    with reachable_directory() as place:
        home = place / "home"
        home.mkdir()
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        path = os.pathsep.join([str(ROOT), python_path()])
        done = run_as_nobody("tests.whole.inside_jobs", home, code=ROOT, path=path, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("network", ["host", "private", "opened"])
def test_without_auth_the_user_is_root_and_a_job_is_not(told: dict[str, Any], network: str) -> None:
    found = told[f"{network} without auth"]
    assert set(found["user"].values()) == {200}
    expected = {"unreachable"} if network == "private" else {403}
    assert set(found["job"].values()) == expected, found


@pytest.mark.parametrize("network", ["host", "private", "opened"])
def test_with_auth_a_job_needs_a_token(told: dict[str, Any], network: str) -> None:
    found = told[f"{network} with auth"]
    assert found["user"]["gcs"] == 200, "Google's clients that send no token are let in by whose they are"
    if network == "private":
        assert set(found["job"].values()) == {"unreachable"}, found
    else:
        assert set(found["job"].values()) <= {401, 403}, found
