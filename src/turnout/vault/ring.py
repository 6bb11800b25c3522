"""The keys that the settings name: 32 bytes each, in a file or printed by a command.

A file is looked at whenever its key is used, so a key is gone the moment its file is. A command is asked again every
minute, in the background: nobody waits for it.
"""

import contextlib
import logging
import os
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from turnout.errors import NotFound, WrongState
from turnout.vault.header import MARK, Header, read_header

if TYPE_CHECKING:
    from turnout.vault.cipher import DataKey

_log = logging.getLogger(__name__)

_SIZE = 32
_LONGEST_ANSWER = 4096
_COMMAND_SECONDS = 10.0
_ASK_AGAIN = 60.0
_HEX = re.compile(rb"[0-9a-fA-F]{64}")


class KeyGone(WrongState):
    """A key that something was sealed with is not to be had: what it sealed cannot be read."""


class _Read(NamedTuple):
    """A key as a file had it at some time."""

    state: tuple[int, int, int, int]
    key: bytes


class KeyRing:
    def __init__(
        self, files: Mapping[str, str] | None = None, commands: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._files = dict(files or {})
        self._commands = {name: list(argv) for name, argv in (commands or {}).items()}
        self._read: dict[str, _Read] = {}
        self._told: dict[str, bytes | str] = {}
        """What each command said last: the key, or why there is none."""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._files or name in self._commands

    def __bool__(self) -> bool:
        return bool(self._files or self._commands)

    def open(self) -> None:
        """Asks the commands once, and from then on in the background. Blocks."""
        self._ask()
        if self._commands:
            self._thread = threading.Thread(target=self._keep_asking, name="key ring", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def check(self) -> dict[str, str]:
        """The keys that cannot be had at the moment, each with why."""
        return {name: why for name in (*self._files, *self._commands) if (why := self._trouble(name))}

    def new(self, name: str) -> "DataKey":
        """A fresh one, wrapped by the key of this name. Raises NotFound if the ring has none, or KeyGone."""
        from turnout.vault.cipher import make_data_key  # only who uses keys pays for what it takes

        if name not in self:
            raise NotFound(
                f"the key ring has no key {name!r}; the operator adds it to [keyring] in the settings"
            )
        return make_data_key(name, self._key(name))

    def data_key(self, header: Header) -> "DataKey":
        """Raises KeyGone."""
        from turnout.vault.cipher import Unopenable, unwrap

        if header.key not in self:
            raise KeyGone(f"the key {header.key!r} is not in the key ring: what it protects cannot be read")
        try:
            return unwrap(header, self._key(header.key))
        except Unopenable:
            raise KeyGone(
                f"the key {header.key!r} is another one than before: what the old one protects cannot be read"
            ) from None

    def opened(self, sealed: bytes, about: str) -> bytes:
        """Raises KeyGone."""
        from turnout.vault.cipher import Unopenable

        found = read_header(sealed)
        if found is None:
            raise KeyGone(f"{about}: what is kept is damaged and cannot be read")
        try:
            return self.data_key(found[0]).open(sealed, about)
        except Unopenable:
            raise KeyGone(f"{about}: what is kept was changed and cannot be read") from None

    def opened_text(self, text: str, about: str) -> str:
        """Raises KeyGone. A text that only looks like a sealed one is given back as it is."""
        from turnout.vault.cipher import unmarked

        sealed = unmarked(text) if text.startswith(MARK) else b""
        return self.opened(sealed, about).decode() if read_header(sealed) else text

    # Keys of the ring.

    def _key(self, name: str) -> bytes:
        try:
            return self._from_file(name) if name in self._files else self._from_command(name)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise KeyGone(
                f"the key {name!r} cannot be had ({why}): what it protects cannot be read"
            ) from None

    def _trouble(self, name: str) -> str:
        try:
            self._key(name)
        except KeyGone as error:
            return error.message
        return ""

    def _from_file(self, name: str) -> bytes:
        file = os.open(self._files[name], os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            about = os.fstat(file)
            state = about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size
            known = self._read.get(name)
            if known is None or known.state != state:
                known = self._read[name] = _Read(state, _parsed(os.read(file, _LONGEST_ANSWER)))
            return known.key
        finally:
            os.close(file)

    def _from_command(self, name: str) -> bytes:
        told = self._told.get(name, "its command was not asked yet")
        if isinstance(told, str):
            raise ValueError(told)
        return told

    def _keep_asking(self) -> None:
        while not self._closed.wait(_ASK_AGAIN):
            self._ask()

    def _ask(self) -> None:
        for name, argv in self._commands.items():
            said = _answer(argv)
            if isinstance(said, str) and self._told.get(name) != said:
                _log.warning("the key %s cannot be had: %s", name, said)
            self._told[name] = said


def _answer(argv: list[str]) -> bytes | str:
    """The key that a command prints, or why there is none."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=_COMMAND_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{argv[0]} did not answer within {_COMMAND_SECONDS:.0f} s"
    except OSError as error:
        return f"{argv[0]} cannot be run: {error.strerror}"
    if done.returncode:
        return f"{argv[0]} ended with code {done.returncode}"
    with contextlib.suppress(ValueError):
        return _parsed(done.stdout)
    return f"{argv[0]} did not print {_SIZE} bytes or {2 * _SIZE} hexadecimal digits"


def _parsed(data: bytes) -> bytes:
    """Raises ValueError."""
    if len(data) == _SIZE:
        return data
    if _HEX.fullmatch(data.strip()):
        return bytes.fromhex(data.strip().decode())
    raise ValueError(f"it must be {_SIZE} bytes, or {2 * _SIZE} hexadecimal digits")
