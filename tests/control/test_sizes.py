"""Gangs of every size on machines of every size: what can start starts, and nothing is left over or missing."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.stepping import MASTER, PROGRAM, Room, gang, ready, reloaded, started
from turnout.control.explain import explain
from turnout.control.node_pool import NodePool
from turnout.errors import Unavailable
from turnout.job import Attempt, Job, Launch, Node, Resources, Role, Spec, State
from turnout.job.resources import GIB, Share

ALL = (*range(1, 300), *range(300, 1001, 7))
SOME = (*range(1, 130), 250, 333, 455, 512, 700, 999, 1000)


@pytest.mark.parametrize(
    ("cpus", "sizes"), [(8, ALL), *((cpus, SOME) for cpus in (1, 2, 3, 6, 7, 16, 24, 64, 96))]
)
def test_a_gang_of_any_size_starts_on_an_idle_machine_and_leaves_it_idle(
    cpus: int, sizes: Iterable[int]
) -> None:
    pool = NodePool()
    pool.resize((Node("this", 1000 * cpus, 16 * GIB, 0),))
    for members in sizes:
        spec = gang(workers=members - 1)
        placement = pool.place(Launch(Attempt(1, 1), "p", "tia", "j", spec), spec.parts)
        assert placement is not None, members
        held = sum((allocation.share for allocation in placement.values()), Share(0, 0, 0))
        assert held == pool.fit(spec.parts).need, members
        pool.take(placement)
        pool.give(placement)
        assert pool.free == pool.total


roles = st.tuples(
    st.integers(1, 12),
    st.one_of(st.floats(0, 20), st.integers(0, 20)),
    st.integers(0, 20 * GIB),
    st.integers(0, 2),
)
machines = st.lists(
    st.builds(
        lambda name, cpu, memory, gpus: Node(str(name), cpu, memory, gpus),
        st.uuids(),
        st.integers(1, 64_000),
        st.integers(1, 64 * GIB),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=4,
)


def spec_of(wanted: list[tuple[int, float, int, int]], **more: object) -> Spec:
    made = [
        Role(f"role{number}", PROGRAM, count, Resources.of(cores, memory, gpus), leads=number == 0)
        for number, (count, cores, memory, gpus) in enumerate(wanted)
    ]
    return Spec(tuple(made), **more)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(wanted=st.lists(roles, min_size=1, max_size=3), nodes=machines)
def test_cpu_and_memory_never_refuse_a_gang(
    wanted: list[tuple[int, float, int, int]], nodes: list[Node]
) -> None:
    """On any nodes; what GPUs refuse is known beforehand."""
    pool, spec = NodePool(), spec_of(wanted)
    pool.resize(tuple(nodes))
    placement = pool.place(Launch(Attempt(1, 1), "p", "tia", "j", spec), spec.parts)
    fit = pool.fit(spec.parts)
    assert (placement is None) is fit.never
    if placement is None:
        assert fit.need.gpus
        return
    pool.take(placement)
    assert min(pool.free) >= 0
    for node in nodes:
        gpus = [
            gpu
            for allocation in placement.values()
            if allocation.node == node.name
            for gpu in allocation.gpus
        ]
        assert len(gpus) == len(set(gpus)) <= node.gpus
    for name, role in Launch(Attempt(1, 1), "p", "tia", "j", spec).replicas():
        assert len(placement[name].gpus) == role.resources.gpus
    if fit.alone and len(nodes) == 1:
        assert pool.free[:2] == (0, 0)
    pool.give(placement)
    assert pool.free == pool.total


@settings(max_examples=40, deadline=None)
@given(
    nodes=machines,
    gangs=st.lists(st.lists(roles, min_size=1, max_size=2), min_size=1, max_size=8),
    data=st.data(),
)
def test_whatever_waits_runs_in_the_end(
    nodes: list[Node], gangs: list[list[tuple[int, float, int, int]]], data: st.DataObject
) -> None:
    """On several nodes, also when the service starts again and when nodes change meanwhile."""
    room = Room()
    room.nodes = tuple(nodes)
    room.resize_to(*nodes)
    room.sync()
    jobs: list[Job] = []
    for wanted in gangs:
        try:
            jobs.append(room.create(spec_of(wanted)))
        except Unavailable:
            continue
    while any(job.live for job in jobs):
        running = [job for job in jobs if job.state is State.PREPARING]
        assert running, "something always runs"
        job = data.draw(st.sampled_from(running))
        for name in list(room.machine.jobs[job.id].replicas):
            room.end(job, name)
        if data.draw(st.booleans()):
            less = [node._replace(millicores=data.draw(st.integers(1, 64_000))) for node in nodes]
            room.resize_to(*less)
    pool = room.machine.pools["local"]
    assert pool.free == pool.total


@pytest.mark.parametrize("members", [9, 11, 36, 100])
def test_a_restart_knows_what_an_oversized_gang_holds(members: int) -> None:
    room = ready(cpu=8)
    job = room.create(gang(workers=members - 1))
    waits = room.create(gang())
    assert (job.state, waits.state) == (State.PREPARING, State.QUEUED)
    after = reloaded(room, job.current)
    pool = after.machine.pools["local"]
    assert pool.free[:2] == (0, 0)
    assert after.machine.jobs[job.id].held == pool.total
    names = list(after.machine.jobs[job.id].replicas)
    turns = [after.end(job, name) for name in reversed(names)]
    assert started(turns[-1]) == [waits.id]


def test_a_machine_that_shrank_and_grew_counts_what_is_there() -> None:
    room = ready(cpu=8)
    job = room.create(gang(cpu=6))
    room.resize(cpu=4)
    assert room.machine.pools["local"].free.millicores == 0
    small = room.create(gang())
    assert small.state is State.QUEUED
    room.resize(cpu=8)
    assert small.state is State.PREPARING
    room.end(small)
    room.end(job)
    assert room.machine.pools["local"].free == room.machine.pools["local"].total


def test_a_job_whose_gpus_were_removed_delays_no_other() -> None:
    room = ready(cpu=4, gpus=2)
    holder = room.create(gang(gpus=2))
    stuck = room.create(gang(cpu=4, gpus=2))
    small = room.create(gang(cpu=2))
    assert (stuck.state, small.state) == (State.QUEUED, State.QUEUED)
    node = room.nodes[0]
    assert started(room.resize_to(node._replace(gpus=1))) == [small.id], "it wants no GPU"
    assert "never start" in " ".join(explain(room.machine, room.machine.jobs[stuck.id]).why)
    room.resize_to(node)
    room.end(small)
    assert started(room.end(holder)) == [stuck.id]


def test_gpus_of_several_nodes_are_not_those_of_one() -> None:
    room = ready()
    room.resize_to(Node("a", 8000, 16 * GIB, 1), Node("b", 8000, 16 * GIB, 1))
    with pytest.raises(Unavailable, match="2 GPUs requested, but the machines have 1, 1"):
        room.create(gang(gpus=2))
    assert room.create(gang(gpus=1, workers=1)).state is State.PREPARING


def test_a_job_that_needs_a_whole_node_gets_one() -> None:
    """There may be room enough on all of them together."""
    room = ready()
    room.resize_to(Node("a", 4000, 16 * GIB, 0), Node("b", 4000, 16 * GIB, 0))
    first, second = (room.create(gang(cpu=3)) for _ in range(2))
    head = room.create(gang(cpu=2))
    small = room.create(gang(cpu=1))
    assert {
        allocation.node
        for one in (first, second)
        for allocation in room.machine.jobs[one.id].placement.values()
    } == {
        "a",
        "b",
    }
    assert (head.state, small.state) == (State.QUEUED, State.QUEUED)
    assert started(room.end(first)) == [head.id, small.id]


def test_a_replica_larger_than_any_node_runs_alone() -> None:
    room = ready()
    room.resize_to(Node("a", 4000, 16 * GIB, 0), Node("b", 4000, 16 * GIB, 0))
    small = room.create(gang())
    large = room.create(gang(cpu=6))
    assert large.state is State.QUEUED
    assert started(room.end(small, MASTER)) == [large.id]
