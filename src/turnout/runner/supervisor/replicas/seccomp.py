"""The seccomp filter of sandboxes. It refuses system calls that reach deep into the kernel and that no training needs.

It is classic BPF, as `bwrap --seccomp` and prctl take it. A refused call fails with an error, as on a kernel without
that feature; nothing is killed. A filter cannot see the flags of clone3, so clone3 fails as unknown, and glibc uses
clone, whose flags are visible. Calls through another interface (32 bits, x32) all fail.
"""

import ctypes
import errno
import os
import struct

_NEW_USER = 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

REFUSED: dict[str, tuple[int | None, int | None]] = {
    # name: number on x86_64 and on aarch64; None: does not exist there
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
CLONE3 = 435
FLAGS: dict[str, tuple[tuple[int, int], int]] = {
    # name: numbers, and the bit of the first argument that is refused
    "clone": ((56, 220), _NEW_USER),
    "unshare": ((272, 97), _NEW_USER),
}
IOCTL = (16, 29)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24

_SET_SECCOMP, _FILTER = 22, 2
_prctl = ctypes.PyDLL(None, use_errno=True).prctl

Code = ctypes.Array[ctypes.c_char]
"""A filter in a buffer that ends with a zero byte."""
_Instruction = tuple[int, int, int, int]


def program(machine: str | None = None) -> bytes:
    """The filter for this kind of machine; empty if it is not supported."""
    machine = machine or os.uname().machine
    if machine not in _ARCH:
        return b""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _instructions(machine))


_program_fd = -1


def open_program() -> int:
    """Returns a descriptor of the filter, which the caller closes. Raises OSError."""
    global _program_fd
    if _program_fd < 0:
        _program_fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
        os.write(_program_fd, program())
    # Opened anew, so that each reader starts at the beginning.
    return os.open(f"/proc/self/fd/{_program_fd}", os.O_RDONLY | os.O_CLOEXEC)


def install(code: "Code") -> None:
    """Installs the filter in this process, for good. The process must have given up all privileges. Raises OSError."""
    address = ctypes.addressof(code)
    head = struct.pack("@HP", (len(code) - 1) // 8, address)
    if _prctl(_SET_SECCOMP, _FILTER, head, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def _instructions(machine: str) -> list[_Instruction]:
    which = list(_ARCH).index(machine)
    refuse, unknown = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS
    found: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCH[machine]),
        (_RETURN, 0, 0, unknown),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        found += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, unknown)]
    found += [(_EQUAL, 0, 1, CLONE3), (_RETURN, 0, 0, unknown)]
    for numbers in REFUSED.values():
        if (number := numbers[which]) is not None:
            found += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    for numbers, bit in FLAGS.values():
        found += [(_EQUAL, 0, 4, numbers[which]), (_LOAD, 0, 0, _FIRST), (_ANY_BIT, 0, 1, bit)]
        found += [(_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW)]
    found += [(_EQUAL, 0, 5, IOCTL[which]), (_LOAD, 0, 0, _SECOND)]
    found += [(_EQUAL, 1, 0, _TIOCSTI), (_EQUAL, 0, 1, _TIOCLINUX)]
    found += [(_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ALLOW)]
    return found
