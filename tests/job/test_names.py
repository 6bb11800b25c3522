"""The name that a replica has for its peers and for people."""

import re

from hypothesis import given
from hypothesis import strategies as st

from turnout.job import IdMaker, ReplicaName, from_uuid, host_name, to_uuid


@given(job_id=st.integers(0, (1 << 63) - 1), name=st.text(), role=st.sampled_from(["master", "worker", "ps"]))
def test_a_host_name_is_one_and_always_the_same(job_id: int, name: str, role: str) -> None:
    host = host_name(job_id, name, ReplicaName(role, 7))
    assert re.fullmatch(r"[a-z0-9.-]{1,64}", host)
    assert host == host_name(job_id, name, ReplicaName(role, 7))
    assert host != host_name(job_id, name, ReplicaName(role, 8))


def test_it_looks_like_the_documented_pod_names() -> None:
    host = host_name(1846031847234928640, "cpu-job", ReplicaName("master", 0))
    assert re.fullmatch(r"cpu-job-master-[a-z0-9]{4}-0-[a-z0-9]{5}", host)


@given(st.integers(0, (1 << 63) - 1))
def test_an_id_and_its_uuid_lead_to_each_other(job_id: int) -> None:
    assert from_uuid(to_uuid(job_id)) == job_id


def test_other_uuids_are_not_ours() -> None:
    assert from_uuid("550e8400-e29b-41d4-a716-446655440000") is None
    assert from_uuid("not a uuid") is None


@given(st.lists(st.integers(0, 1 << 62), min_size=1))
def test_ids_always_grow_even_when_the_clock_steps_back(times: list[int]) -> None:
    maker = IdMaker()
    ids = [maker.next(time) for time in times]
    assert ids == sorted(set(ids))
