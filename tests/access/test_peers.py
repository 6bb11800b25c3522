"""A connection from inside a job is never the operator's, even if it has the same user."""

import json
import os
import pwd
import shutil
import tempfile
from pathlib import Path

import google_crc32c
import msgspec
import pytest

from tests.ordinary import run_as_nobody

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_job_of_an_ordinary_user_is_not_that_user():
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(prefix="turnout-", ignore_cleanup_errors=True) as name:
        code, home = Path(name, "code"), Path(name, "home")
        os.chmod(name, 0o755)
        for package in (msgspec, google_crc32c):
            shutil.copytree(Path(str(package.__file__)).parent, code / package.__name__)
        shutil.copytree(ROOT / "src" / "turnout", code / "turnout")
        shutil.copytree(ROOT / "tests", code / "tests", ignore=shutil.ignore_patterns("conftest.py"))
        home.mkdir()
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        done = run_as_nobody("tests.access.as_operator", home, code=code)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("mine") is True
    assert set(told) == {"bubblewrap", "bubblewrap, hidden", "none", "none, hidden", "reach"}
    assert not any(told.values()), told
