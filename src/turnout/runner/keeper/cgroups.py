"""Limits on CPU, memory and processes, by a pool of cgroups that are used again and again."""


class Slot:
    number: int


class Slots:
    pass


def find(name: str, uid: int, gid: int) -> Slots | None:
    return None
