from pathlib import Path

from tests.engines.local.yard import Yard
from turnout.job import Program, ReplicaName, Role

MEETING = (Path(__file__).parent / "meeting.py").read_text()


async def test_four_processes_find_each_other_by_tf_config(yard: Yard):
    command = Program(("python", "-c", MEETING))
    roles = (
        Role("master", command, leads=True, task_type="chief"),
        Role("ps", command),
        Role("worker", command, replicas=2),
    )
    attempt = await yard.start(roles=roles)
    said = []
    for name in ("master-0", "ps-0", "worker-0", "worker-1"):
        end = await yard.ended(attempt, ReplicaName.parse(name))
        assert end.code == 0, yard.out(attempt, end.replica, stream=1)
        said.append(yard.out(attempt, end.replica))
    assert said == [
        "chief 0 heard ps 0, worker 0, worker 1\n",
        "ps 0 heard chief 0, worker 0, worker 1\n",
        "worker 0 heard chief 0, ps 0, worker 1\n",
        "worker 1 heard chief 0, ps 0, worker 0\n",
    ]
