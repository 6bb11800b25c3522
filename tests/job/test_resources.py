"""Whole numbers, and what earlier versions stored."""

import msgspec
import pytest

from turnout.job import Resources, Spec
from turnout.job.resources import Share
from turnout.runner.allowance import Allowance


@pytest.mark.parametrize(
    ("cores", "expected"), [(0, 0), (0.0001, 1), (0.25, 250), (0.1, 100), (2, 2000), (0.3 + 0.6, 900)]
)
def test_cores_become_millicores(cores: float, expected: int) -> None:
    assert Resources.of(cores).millicores == expected


def test_what_earlier_versions_stored_is_read() -> None:
    role = b'{"name":"master","program":{},"resources":{"cpu":%s,"memory":1024,"gpus":1},"leads":true}'
    for stored, expected in ((b"2", 2000), (b"0.5", 500), (b"2.0", 2000)):
        spec = msgspec.json.decode(b'{"roles":[' + role % stored + b"]}", type=Spec)
        resources = spec.roles[0].resources
        assert resources == Resources(expected, 1024, 1)
        assert msgspec.json.decode(msgspec.json.encode(resources)) == {
            "millicores": expected,
            "memory": 1024,
            "gpus": 1,
        }
    old = b'{"cpu":{"worker":1.5},"memory":{"worker":7}}'
    assert msgspec.json.decode(old, type=Allowance) == Allowance({"worker": 1500}, {"worker": 7})


def test_no_limit_counts_as_one_core_and_one_gib() -> None:
    assert Resources().share == Share(1000, 1 << 30, 0)
