"""Shells beside the program."""

import base64

import pytest

from tests.runner.node.conftest import Start
from tests.runner.node.fake_gateway import FakeGateway
from tests.runner.node.test_program import shell


def text_of(gateway: FakeGateway, id: str) -> str:
    return gateway.shell_output.get(id, b"").decode(errors="replace").replace("\r\n", "\n")


@pytest.mark.parametrize("sandboxed", [False, True])
def test_a_shell_sees_what_the_program_sees(
    sandboxed: bool, gateway: FakeGateway, start_runner: Start, without_sandbox: str
):
    gateway.plan = lambda arrival: {
        "argv": ["/bin/sh", "-c", "echo content > file; sleep 60"],
        "env": {"PATH": "/usr/bin:/bin", "A": "from the plan", "PS1": "> "},
    }
    gateway.fault = lambda name, count: "after" if name.startswith("shell/") and count % 3 == 0 else ""
    runner = start_runner(**{} if sandboxed else {"PATH": without_sandbox})
    gateway.wait_for(lambda: gateway.started)
    gateway.order("shell", id="s1", columns=91, rows=33)
    gateway.order("shell", id="s1", columns=91, rows=33)  # again, with a new number
    gateway.wait_for(lambda: "> " in text_of(gateway, "s1"))
    gateway.type('echo "[$A]"; cat file; stty size; tty > /dev/null && echo a tty\n')
    gateway.wait_for(lambda: "a tty\n> " in text_of(gateway, "s1"))
    assert "\n[from the plan]\ncontent\n33 91\na tty\n" in text_of(gateway, "s1")
    with gateway.changed:
        gateway.shell_input.append({"columns": 120, "rows": 40})
    gateway.type("stty size\n")
    gateway.wait_for(lambda: "40 120\n" in text_of(gateway, "s1"))
    gateway.type("exit 5\n")
    gateway.wait_for(lambda: gateway.shell_codes)
    assert gateway.shell_codes == {"s1": 5}
    gateway.order("stop", grace=0)
    runner.finish()


def test_a_shell_is_closed(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("sleep 60")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.started)
    gateway.order("shell", id="s1", columns=80, rows=24)
    gateway.type("trap '' HUP; echo rea''dy\n")
    gateway.wait_for(lambda: "ready" in text_of(gateway, "s1"))
    with gateway.changed:
        gateway.shell_input.append({"close": True})
        gateway.changed.notify_all()
    gateway.wait_for(lambda: gateway.shell_codes)
    assert gateway.shell_codes == {"s1": 128 + 9}
    assert not gateway.ended
    gateway.order("stop", grace=0)
    runner.finish()


def test_a_shell_ends_with_the_program(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("while [ ! -e done ]; do sleep 0.05; done; exit 3")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.started)
    gateway.order("shell", id="s1", columns=80, rows=24)
    gateway.type("sleep 1000 & touch done; wait\n")
    assert runner.wait_for_end()["code"] == 3
    gateway.wait_for(lambda: gateway.shell_codes)
    assert runner.finish() == 3


def test_much_output_of_a_shell_comes_whole(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("sleep 60")
    gateway.fault = lambda name, count: "after" if name.endswith("output") and count % 2 else ""
    runner = start_runner()
    gateway.wait_for(lambda: gateway.started)
    gateway.order("shell", id="s1", columns=80, rows=24)
    gateway.type("seq 20000; exit\n")
    gateway.wait_for(lambda: gateway.shell_codes, 60)
    assert "".join(f"{number}\n" for number in range(1, 20001)) in text_of(gateway, "s1")
    gateway.order("stop", grace=0)
    runner.finish()


@pytest.mark.parametrize("allowed", [True, False])
def test_a_shell_that_cannot_be_opened_says_why(allowed: bool, gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("true" if allowed else "sleep 60", shell=allowed)
    runner = start_runner()
    gateway.wait_for(lambda: gateway.ended if allowed else gateway.started)
    gateway.order("shell", id="s1", columns=80, rows=24)
    gateway.wait_for(lambda: gateway.shell_codes)
    assert gateway.shell_codes == {"s1": 126}
    reason = "the program is not running" if allowed else "this job does not allow shells"
    assert text_of(gateway, "s1") == f"{reason}\n"
    if not allowed:
        gateway.order("stop", grace=0)
    runner.finish()


def test_input_may_be_any_bytes(gateway: FakeGateway, start_runner: Start):
    gateway.plan = shell("sleep 60")
    runner = start_runner()
    gateway.wait_for(lambda: gateway.started)
    gateway.order("shell", id="s1", columns=80, rows=24)
    with gateway.changed:
        gateway.shell_input.append({"data": base64.b64encode("echo ü | od -An -tx1\n\x04".encode()).decode()})
        gateway.changed.notify_all()
    gateway.wait_for(lambda: gateway.shell_codes)
    assert "c3 bc 0a" in text_of(gateway, "s1")
    gateway.order("stop", grace=0)
    runner.finish()
