"""A child for the tests, controlled by its requests."""

import os
import signal
import sys
import time

import msgspec

from turnout.child_processes.bootstrap import Setup, drop_privileges, read_setup, reply


class Greeting(Setup):
    log: str = ""
    """Where each process writes its id when it starts and when it ends."""
    stubborn: bool = False
    """Whether it keeps running when its input ends."""


class Echo(msgspec.Struct):
    id: int
    pid: int = 0
    text: str = ""
    progress: bool = False


class Do(msgspec.Struct):
    id: int
    do: str = "echo"
    text: str = ""
    cancel: bool = False


def main() -> None:
    setup = read_setup(Greeting)
    drop_privileges(setup)
    note(setup, "+")
    decoder = msgspec.json.Decoder(Do)
    for line in sys.stdin.buffer:
        act(decoder.decode(line))
    while setup.stubborn:
        time.sleep(10)
    note(setup, "-")


def note(setup: Greeting, sign: str) -> None:
    if setup.log:
        with open(setup.log, "a") as file:
            file.write(f"{sign}{os.getpid()}\n")


def act(order: Do) -> None:
    match order.do:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(int(order.text))
        case "silence":
            return
        case "garbage":
            os.write(_replies_fd(), b"this is no JSON\n")
        case "long":
            reply(Echo(order.id, text="x" * (4 << 20)))
        case "print":
            print(f'{{"id": {order.id}, "text": "printed"}}', flush=True)
            reply(Echo(order.id, os.getpid(), "answered"))
        case "progress":
            reply(Echo(order.id, progress=True))
            reply(Echo(order.id, text="whole"))
        case "rights":
            reply(Echo(order.id, text=f"{os.getresuid()} {os.getresgid()} {os.getgroups()}"))
        case "memory":
            try:
                held = bytearray(int(order.text))
                reply(Echo(order.id, text=f"got {len(held)}"))
            except MemoryError:
                reply(Echo(order.id, text="no memory"))
        case _:
            reply(Echo(order.id, os.getpid(), "cancelled" if order.cancel else order.text))


def _replies_fd() -> int:
    from turnout.child_processes import bootstrap

    return bootstrap._replies
