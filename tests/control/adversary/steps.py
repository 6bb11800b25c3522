"""The steps of a history: what users, programs, engines, networks, clocks and databases may do at any time."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from msgspec import structs

from tests.control.adversary.engine import Adversary, Gang, Process
from tests.control.adversary.world import NODES, World
from tests.control.stepping import gang
from turnout.control.live_job import SECOND
from turnout.job import (
    Attempt,
    Job,
    Mount,
    NewJob,
    Reason,
    ReplicaName,
    Retry,
    Spec,
    State,
)

HOUR = 3600 * SECOND
MOST_LIVE = 8
RETRIES = [
    (),
    (Retry((Reason.NODE_LOST,), 1),),
    (Retry((Reason.PROGRAM_FAILED, Reason.HUNG, Reason.NODE_LOST), 2),),
]
FAULTS = ["refused", "answer lost", "killed before", "killed after", ""]
MOODS = ["unreachable", "answer lost", "slow", "slow answer", "refused", "fails", ""]

Rule = Callable[[World, Random], Awaitable[None] | None]
RULES: list[tuple[int, Rule]] = []
"""With their weights."""


async def take_step(world: World, chance: Random) -> None:
    rules = [rule for _, rule in RULES]
    done = chance.choices(rules, [weight for weight, _ in RULES])[0](world, chance)
    if done:
        await done
    # Inputs that come without a pause share a turn.
    await asyncio.sleep(chance.choice([0, 0, 0.01, 0.01, 0.01, 2]))
    await world.check()


def rule(weight: int) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        RULES.append((weight, rule))
        return rule

    return add


def a_spec(chance: Random) -> Spec:
    pick = chance.choice
    workers, ps = pick([(0, 0), (0, 0), (1, 0), (2, 0), (0, 1), (1, 1)])
    spec = gang(
        cpu=pick([1, 1, 2, 4, 9]),
        gpus=pick([0, 0, 0, 1]) if workers + ps < 2 else 0,
        workers=workers,
        ps=ps,
        priority=pick([0, 0, 1, 2]),
        preemptible=pick([True, False]),
        max_wait=pick([None, None, 50]),
        time_limit=pick([None, 100]),
        retries=pick(RETRIES),
        in_place=pick([None, None, Retry((Reason.PROGRAM_FAILED, Reason.KILLED), 2)]),
    )
    return structs.replace(spec, mounts=(Mount("cos://b/out", "/out"),)) if chance.random() < 0.3 else spec


# The users.


@rule(10)
def create(world: World, chance: Random) -> None:
    if sum(job.live for job in world.records.jobs.values()) >= MOST_LIVE:
        return
    world.names += 1
    cluster = chance.choice(list(world.engines))
    new = NewJob("p", "tia", "tia", name := f"job-{world.names}", name, cluster, a_spec(chance), b"{}")
    assert world.control
    world.tell(f"create {name} on {cluster}")
    world.call(f"create {name}", world.control.create(new), lambda job: True)


def a_job(world: World, chance: Random) -> Job | None:
    jobs = [job for job in world.records.jobs.values() if job.live] or list(world.records.jobs.values())
    return chance.choice(jobs) if jobs else None


@rule(3)
def stop(world: World, chance: Random) -> None:
    if (job := a_job(world, chance)) and world.control:
        world.records.stops.add(job.id)
        world.tell(f"stop {job.id}")
        stopping = {State.STOPPING, State.STOPPED, State.FAILED, State.SUCCEEDED}
        # A job whose lead has succeeded is not stopped any more.
        asked = world.control.stop(job.id, "alice")
        world.call(f"stop {job.id}", asked, lambda job: job.state in stopping or job.reason is not None)


@rule(2)
def delete(world: World, chance: Random) -> None:
    if (job := a_job(world, chance)) and world.control:
        world.records.stops.add(job.id)
        world.tell(f"delete {job.id}")
        asked = world.control.delete(job.id, "alice")
        world.call(f"delete {job.id}", asked, lambda job: job.deleted is not None)


@rule(2)
def amend(world: World, chance: Random) -> None:
    if (job := a_job(world, chance)) and world.control:
        priority = chance.randrange(4)
        world.tell(f"amend {job.id}: priority {priority}")
        asked = world.control.amend(job.id, "alice", priority=priority)
        world.call(f"amend {job.id}", asked, lambda job: True)


# The programs.


def an_engine(world: World, chance: Random) -> Adversary:
    return chance.choice(list(world.engines.values()))


@rule(14)
def a_program_starts(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    if found := engine.where(lambda process: process.started is None and process.ended is None):
        engine.one_starts(*chance.choice(found), world.clock() + chance.choice([0, 0, 0, -HOUR, HOUR]))


@rule(14)
def a_program_ends(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    if found := engine.where(lambda process: process.ended is None):
        at = world.clock() + chance.choice([0, 0, 0, -HOUR, HOUR])
        engine.one_ends(*chance.choice(found), at, chance)


@rule(1)
def a_gang_hangs(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    if engine.held:
        engine.one_hangs(chance.choice(list(engine.held)), world.clock())


# The network.


@rule(25)
def a_report_arrives(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    if engine.wire:
        engine.deliver(0)


@rule(12)
def all_reports_arrive(world: World, chance: Random) -> None:
    an_engine(world, chance).deliver_all()


@rule(6)
def a_report_overtakes(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    if engine.wire:
        engine.deliver(chance.randrange(len(engine.wire)))


@rule(4)
def a_report_arrives_twice(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    if engine.wire:
        engine.deliver(0, again=True)


@rule(4)
def an_old_report_arrives(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    if engine.sent:
        engine.replay(chance)


@rule(2)
def a_report_is_lost(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    if engine.wire:
        number = chance.randrange(len(engine.wire))
        world.tell(f"lost: {engine.wire[number]}")
        engine.drop(number)


@rule(4)
def the_engine_connects_again(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    world.tell(f"{engine.name} connects again")
    engine.connect()


# The engine.


@rule(10)
def calls_go_wrong(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    engine.gate.clear()
    moods = chance.choices(MOODS, k=chance.randrange(1, 4))
    world.tell(f"the next calls of {engine.name}: {moods}")
    engine.moods.extend(moods)


@rule(8)
def slow_calls_go_on(world: World, chance: Random) -> None:
    an_engine(world, chance).gate.set()


@rule(1)
def the_engine_loses_its_memory(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    world.tell(f"{engine.name} loses its memory")
    engine.loses_its_memory()


@rule(2)
def the_engine_remembers(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    if engine.lost:
        world.tell(f"{engine.name} remembers {[str(attempt) for attempt in engine.lost]}")
        engine.remembers()


@rule(1)
def the_engine_has_attempts_that_nobody_knows(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    old = [Attempt(past.job, past.attempt) for pasts in world.records.past.values() for past in pasts]
    world.names += 1
    attempt = chance.choice([Attempt(world.names, 1), *old])
    if all(attempt not in other.held for other in world.engines.values()):
        world.tell(f"{engine.name} comes back with {attempt}")
        engine.held[attempt] = Gang({ReplicaName("master", 0): Process()}, twice=True, unannounced=True)
        engine.connect()


@rule(2)
def nodes_change(world: World, chance: Random) -> None:
    engine = an_engine(world, chance)
    engine.nodes = chance.choice(
        [NODES, NODES[:1], NODES[1:], (NODES[0]._replace(millicores=2000), NODES[1])]
    )
    world.tell(f"{engine.name} has the nodes {[node.name for node in engine.nodes]}")
    engine.connect()


# The service and its surroundings.


@rule(4)
def a_commit_fails(world: World, chance: Random) -> None:
    fault = chance.choice(FAULTS)
    world.tell(f"the next commit: {fault}")
    world.records.faults.append(fault)


@rule(2)
async def the_service_is_killed(world: World, chance: Random) -> None:
    world.tell("killed")
    await world.kill()
    await world.boot()


@rule(1)
async def the_machine_is_rebooted(world: World, chance: Random) -> None:
    world.tell("rebooted")
    await world.kill()
    for engine in world.engines.values():
        engine.is_rebooted()
    world.steady = 20 * SECOND - int(world.loop.time() * SECOND)
    await world.boot()


@rule(4)
async def time_passes(world: World, chance: Random) -> None:
    await asyncio.sleep(chance.choice([1, 5, 60, 2000]))


@rule(2)
def the_clock_is_set(world: World, chance: Random) -> None:
    step = chance.choice([-24, -1, 1, 24]) * HOUR
    world.tell(f"the clock is set by {step // HOUR} hours")
    world.wall += step


@rule(1)
def the_machine_sleeps(world: World, chance: Random) -> None:
    world.tell("asleep for 100 s")
    world.wall += 100 * SECOND
    world.steady += 100 * SECOND
