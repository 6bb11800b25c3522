"""Limits on CPU, memory and processes, by a pool of cgroups that are used again and again."""

from typing import Any


class Slot:
    number: int
    memory: int

    def end_all(self) -> bool:
        return False

    def memory_kills(self) -> int:
        return 0


class Slots:
    kind = ""

    def take(self, plan: dict[str, Any]) -> Slot | None: ...
    def retake(self, number: int) -> Slot: ...
    def give_back(self, slot: Slot) -> None: ...


def find(name: str, uid: int, gid: int) -> Slots | None:
    return None
