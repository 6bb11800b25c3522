"""What a program prints: every byte once, with marks, whatever happens to the service and to the files."""

import itertools
import time
from pathlib import Path

import pytest

from tests.runner.node.conftest import Start
from tests.runner.node.fake_gateway import FakeGateway
from tests.runner.node.test_program import shell
from turnout.runner.node.home import Home
from turnout.runner.node.output import Batch, Output


def test_the_marks_cover_everything_in_order(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("for i in 1 2 3; do echo $i; echo $i$i >&2; sleep 0.05; done")
    before = time.time_ns()
    start_runner().wait_for_end()
    marks = gateway.marks
    assert marks[-1][1:] == [6, 9]
    assert len(marks) >= 3
    assert before < marks[0][0] < marks[-1][0] <= gateway.ended[0]["at"] + 1_000_000
    for earlier, later in itertools.pairwise(marks):
        assert later[0] - earlier[0] >= 1_000_000
        assert later[1] >= earlier[1]
        assert later[2] >= earlier[2]


def test_much_output_comes_whole(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("seq 1000000; seq 300000 >&2")
    start_runner().wait_for_end()
    assert bytes(gateway.logs[0]) == b"".join(b"%d\n" % number for number in range(1, 1000001))
    assert bytes(gateway.logs[1]) == b"".join(b"%d\n" % number for number in range(1, 300001))


def test_a_line_is_sent_at_once(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("sleep 0.5; date +%s%N; sleep 60")
    start_runner()
    gateway.wait_for(lambda: gateway.logs[0])
    assert time.time_ns() - int(gateway.logs[0]) < 2e9


@pytest.mark.parametrize("sandboxed", [False, True])
def test_a_redirection_to_dev_stderr_erases_nothing(
    sandboxed: bool, gateway: FakeGateway, start_runner: Start, without_sandbox: str
):
    gateway.plan = shell("for i in 1 2 3 4; do echo a >&2; echo b > /dev/stderr; echo c > /dev/stdout; done")
    start_runner(**{} if sandboxed else {"PATH": without_sandbox}).wait_for_end()
    assert bytes(gateway.logs[1]) == b"a\nb\n" * 4
    assert bytes(gateway.logs[0]) == b"c\n" * 4


def test_a_program_prints_on_while_the_service_does_not_answer(
    gateway: FakeGateway, start_runner: Start, tmp_path: Path
):
    gateway.fault = lambda name, count: (
        "before" if name == "tell" and not (tmp_path / "done").exists() else ""
    )
    gateway.plan = shell(f"head -c 20000000 /dev/zero; touch {tmp_path}/done")
    start_runner().wait_for_end()
    assert gateway.logs[0] == bytes(20_000_000)


# The bookkeeping alone.


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(Home.make(str(tmp_path), "1.1", "worker-0"), 4 << 20)


def send_all(output: Output, logs: list[bytearray]) -> list[Batch]:
    batches: list[Batch] = []
    while output.pending():
        batches.append(output.take())
        for piece in batches[-1].pieces:
            assert piece.offset == len(logs[piece.stream])
            logs[piece.stream] += piece.data
        output.acknowledge([len(log) for log in logs])
        assert len(batches) < 100
    return batches


def append(output: Output, stream: int, data: bytes) -> None:
    while data:
        data = data[output.append(stream, data) :]
    output.mark()


def test_a_batch_is_at_most_a_mebibyte(output: Output):
    append(output, 0, b"x" * (3 << 20))
    append(output, 1, b"y")
    logs = [bytearray(), bytearray()]
    batches = send_all(output, logs)
    assert all(sum(len(piece.data) for piece in batch.pieces) <= 1 << 20 for batch in batches)
    assert [len(log) for log in logs] == [3 << 20, 1]
    # A mark comes with the last of its bytes.
    assert [len(batch.marks) for batch in batches[:2]] == [0, 0]
    assert sum(len(batch.marks) for batch in batches) == 2


def test_a_service_that_has_less_gets_it_again(output: Output):
    append(output, 0, b"0123456789")
    output.take()
    output.acknowledge([4, 0])
    assert [(piece.offset, piece.data) for piece in output.take().pieces] == [(4, b"456789")]


def test_too_much_waiting_output_loses_its_middle(output: Output):
    logs = [bytearray(), bytearray()]
    append(output, 0, b"sent\n")
    send_all(output, logs)
    for number in range(10):
        append(output, 0, b"%d" % number * (1 << 20))
    send_all(output, logs)
    kept = bytes(logs[0])
    assert kept.startswith(b"sent\n" + b"0" * (1 << 20))
    assert kept.endswith(b"9" * (1 << 20))
    assert len(kept) <= (4 << 20) + 5
    assert b"output waited for the service" in logs[1]
    assert output.sizes() == [len(log) for log in logs]
    append(output, 0, b"later")
    send_all(output, logs)
    assert logs[0].endswith(b"later")


def test_marks_of_lost_output_stay_in_order(output: Output):
    for number in range(10):
        append(output, 0, b"%d" % number * (1 << 20))
    marks = [mark for batch in send_all(output, [bytearray(), bytearray()]) for mark in batch.marks]
    assert [mark[1] for mark in marks] == sorted(mark[1] for mark in marks)
    assert marks[-1][1:] == output.sizes()


def test_a_file_that_somebody_truncates_stops_nothing(output: Output):
    logs = [bytearray(), bytearray()]
    append(output, 1, b"sent ")
    send_all(output, logs)
    append(output, 1, b"lost")
    with open(output.paths[1], "wb"):
        pass
    send_all(output, logs)
    assert bytes(logs[1]) == b"sent "
    assert output.sizes() == [0, 5]


def test_acknowledged_output_gives_its_disk_space_back(output: Output):
    logs = [bytearray(), bytearray()]
    for _ in range(40):
        append(output, 0, b"x" * (3 << 20))
        send_all(output, logs)
    assert len(logs[0]) == 120 << 20
    on_disk = Path(output.paths[0]).stat().st_blocks * 512
    assert on_disk < 90 << 20
    append(output, 0, b"end")
    send_all(output, logs)
    assert logs[0].endswith(b"xend")


def test_marks_are_bounded(output: Output):
    for _ in range(70_000):
        append(output, 0, b"x")
    marks = [mark for batch in send_all(output, [bytearray(), bytearray()]) for mark in batch.marks]
    assert len(marks) < 66_000
    assert marks[-1][1:] == [70_000, 0]
