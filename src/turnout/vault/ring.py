"""The keys that the settings name: 32 bytes each, in a file or printed by a command.

A file is checked whenever its key is used, so removing the file removes the key at once. Commands run again every
minute in the background.
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
    from turnout.config import RingKey
    from turnout.vault.cipher import DataKey

_log = logging.getLogger(__name__)

_SIZE = 32
_LONGEST_ANSWER = 4096
_COMMAND_SECONDS = 10.0
_COMMAND_INTERVAL = 60.0
_HEX = re.compile(rb"[0-9a-fA-F]{64}")


class KeyGone(WrongState):
    """The key of some data is not available, so the data cannot be read."""


class _ReadKey(NamedTuple):
    """The key in a file, and the state of the file when it was read."""

    state: tuple[int, int, int, int]
    key: bytes


class KeyRing:
    def __init__(
        self, files: Mapping[str, str] | None = None, commands: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._files = dict(files or {})
        self._commands = {name: list(argv) for name, argv in (commands or {}).items()}
        self._read: dict[str, _ReadKey] = {}
        self._answers: dict[str, bytes | str] = {}
        """The last result of each command: the key, or why there is none."""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._files or name in self._commands

    def __bool__(self) -> bool:
        return bool(self._files or self._commands)

    def open(self) -> None:
        """Run the commands once, which blocks, and from then on in the background."""
        self._run_commands()
        if self._commands:
            self._thread = threading.Thread(target=self._run_commands_forever, name="key ring", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def check(self) -> dict[str, str]:
        """The keys that are not available, each with the reason."""
        return {name: why for name in (*self._files, *self._commands) if (why := self._trouble(name))}

    def new(self, name: str) -> "DataKey":
        """A new data key, wrapped by the key of this name. Raises NotFound if the ring has no such key, or KeyGone."""
        from turnout.vault.cipher import make_data_key  # imported only where keys are used

        if name not in self:
            raise NotFound(
                f"the key ring has no key {name!r}; the operator adds it to [keyring] in the settings"
            )
        return make_data_key(name, self._key(name))

    def data_key(self, header: Header) -> "DataKey":
        """Raises KeyGone."""
        from turnout.vault.cipher import Unopenable, unwrap

        if header.key not in self:
            raise KeyGone(
                f"the key {header.key!r} is not in the key ring: data encrypted with it cannot be read"
            )
        try:
            return unwrap(header, self._key(header.key))
        except Unopenable:
            raise KeyGone(
                f"the key {header.key!r} has changed: data encrypted with the old key cannot be read"
            ) from None

    def opened(self, sealed: bytes, about: str) -> bytes:
        """Raises KeyGone."""
        from turnout.vault.cipher import Unopenable

        found = read_header(sealed)
        if found is None:
            raise KeyGone(f"{about}: the encrypted data is damaged and cannot be read")
        try:
            return self.data_key(found[0]).open(sealed, about)
        except Unopenable:
            raise KeyGone(f"{about}: the encrypted data was changed and cannot be read") from None

    def opened_text(self, text: str, about: str) -> str:
        """Raises KeyGone. Returns a text that is not sealed unchanged."""
        from turnout.vault.cipher import sealed_bytes

        sealed = sealed_bytes(text) if text.startswith(MARK) else b""
        return self.opened(sealed, about).decode() if read_header(sealed) else text

    def _key(self, name: str) -> bytes:
        try:
            return self._from_file(name) if name in self._files else self._from_command(name)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise KeyGone(
                f"the key {name!r} is not available ({why}): data encrypted with it cannot be read"
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
            status = os.fstat(file)
            state = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
            known = self._read.get(name)
            if known is None or known.state != state:
                known = self._read[name] = _ReadKey(state, _parsed(os.read(file, _LONGEST_ANSWER)))
            return known.key
        finally:
            os.close(file)

    def _from_command(self, name: str) -> bytes:
        answer = self._answers.get(name, "its command has not run yet")
        if isinstance(answer, str):
            raise ValueError(answer)
        return answer

    def _run_commands_forever(self) -> None:
        while not self._closed.wait(_COMMAND_INTERVAL):
            self._run_commands()

    def _run_commands(self) -> None:
        for name, argv in self._commands.items():
            answer = _run_command(argv)
            if isinstance(answer, str) and self._answers.get(name) != answer:
                _log.warning("the key %s is not available: %s", name, answer)
            self._answers[name] = answer


def open_ring(keys: "Mapping[str, RingKey]") -> KeyRing:
    """The ring of the settings. A key that is not available is logged; it only affects the data that it encrypts."""
    ring = KeyRing(
        {name: key.file for name, key in keys.items() if key.file},
        {name: key.command for name, key in keys.items() if key.command},
    )
    ring.open()
    for why in ring.check().values():
        _log.warning("%s", why)
    return ring


def _run_command(argv: list[str]) -> bytes | str:
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
    raise ValueError(f"it must be {_SIZE} bytes or {2 * _SIZE} hexadecimal digits")
