"""`turnout runtime` and what `turnout explain` says of a missing module, at a running service."""

import json

import pytest

from tests.running import KEY, running
from tests.wheels import make_wheel


@pytest.fixture(scope="module")
def service():
    with running() as one:
        wheels = one.data.parent / "wheels"
        make_wheel(wheels, "tiny")
        one.config.write_text(
            f'[runtimes]\noffline = true\nfind_links = ["{wheels}"]\n'
            '[runtimes.tiny]\npackages = ["tiny"]\n[runtimes.absent]\npackages = ["absent"]\n'
            '[runtimes.plain]\npython = "/usr/bin/python3"\n'
        )
        yield one.start()


@pytest.fixture
def turnout(service, run_turnout, monkeypatch):
    monkeypatch.setenv("TURNOUT_ENDPOINT", service.endpoint)
    monkeypatch.setenv("TURNOUT_KEY", f"{KEY.id}:{KEY.secret}")
    return run_turnout


def test_runtimes_are_listed_checked_and_made(turnout):
    listed = turnout("runtime", "ls").out
    assert "tiny       not made" in listed
    assert "plain      ready" in listed
    checked = turnout("runtime", "check", "tiny").out
    assert "ok      packages: 1 to install: tiny==1.0" in checked
    made = turnout("runtime", "make", "tiny")
    assert made.code == 0, made.err
    assert made.out.splitlines()[-1].startswith("the environment of the runtime tiny is ready: ")
    again = turnout("runtime", "make", "tiny", "--output", "json")
    assert (again.code, json.loads(again.out)) == (0, [])
    [tiny] = [
        one for one in json.loads(turnout("runtime", "ls", "--output", "json").out) if one["name"] == "tiny"
    ]
    assert (tiny["state"], tiny["packages"]) == ("ready", ["tiny"])
    assert "tiny==1.0" in tiny["installed"]


def test_what_cannot_be_made(turnout):
    failed = turnout("runtime", "make", "absent")
    assert failed.code == 1
    assert "could not be made on Python 3" in failed.err
    assert "absent was not found" in failed.err
    assert "absent     failed" in turnout("runtime", "ls").out
    assert turnout("runtime", "check", "absent").code == 1
    assert (
        "there is no runtime 'other'; the settings have: tiny, absent, plain"
        in turnout("runtime", "make", "other").err
    )
    assert "makes no environment" in turnout("runtime", "make", "plain").err


def test_explain_leads_to_the_setting(service, turnout):
    service.create("first", "python", "-c", "import torch")
    assert service.wait("first")["state"] == "failed"
    told = " ".join(turnout("explain", "first").out.split())
    assert "which has no module torch. Write this into the settings:" in told
    assert '[runtimes."tia-1.7.0"] packages = ["torch"], or [runtimes] make = true' in told
