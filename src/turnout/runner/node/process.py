"""The program of the replica, and other processes that see what it sees."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import resource
import select
import signal
import subprocess
import time
from typing import BinaryIO, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import kernel, sandbox
from .errors import NotStarted
from .home import Home
from .plan import Bind, Plan

_SETUP_SECONDS = 5.0

BeforeExec = Callable[[], None]


class Exit(NamedTuple):
    """One of both is None."""

    code: Optional[int]
    signal: Optional[int]

    @property
    def shell_code(self) -> int:
        return 128 + self.signal if self.signal is not None else self.code or 0

    @property
    def killed(self) -> bool:
        """By KILL, as far as the exit says so: a shell turns the signals of its children into codes."""
        return self.shell_code == 128 + signal.SIGKILL


class Launcher:
    """Starts processes as the plan says. Call it from the main thread only: they die with the thread that started
    them.
    """

    def __init__(self, plan: Plan, home: Home, bwrap: str, inherited: Dict[str, str]) -> None:
        self._plan = plan
        self._home = home
        self._bwrap = bwrap
        self.env = {**_inherit(plan.inherit, inherited), **plan.env}
        self.binds = list(plan.binds)
        if bwrap and plan.hosts:
            hosts = home / "hosts"
            with open(hosts, "w", encoding="utf-8") as file:
                file.write(plan.hosts)
            self.binds.append(Bind(hosts, "/etc/hosts", True))

    @property
    def sandboxed(self) -> bool:
        return bool(self._bwrap)

    def start(
        self,
        argv: List[str],
        stdin: int,
        stdout: int,
        stderr: int,
        env: Optional[Dict[str, str]] = None,
        before_exec: Optional[BeforeExec] = None,
        status: int = -1,
    ) -> subprocess.Popen[bytes]:
        """Raises NotStarted. `env` is added to the program's. `status` gets what bubblewrap reports of its child."""
        env = {**self.env, **(env or {})}
        runner = os.getpid()
        limits = _limits(self._plan.processes)

        def prepare() -> None:
            kernel.die_with_parent(signal.SIGKILL)
            if os.getppid() != runner:
                os._exit(1)
            for kind, limit in limits:
                resource.setrlimit(kind, limit)
            if before_exec:
                before_exec()

        def run(command: List[str], env: Dict[str, str], cwd: str, *pass_fds: int) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                pass_fds=pass_fds,
                start_new_session=True,
                preexec_fn=prepare,
            )

        if not self._bwrap:
            return _bare(run, argv, env, self._plan.cwd)
        chosen = sandbox.options(self.binds, env, self._plan.cwd)
        try:
            with _unnamed_file(self._home) as file:
                file.write(b"".join(os.fsencode(option) + b"\0" for option in chosen))
                file.seek(0)
                command = [self._bwrap, "--args", str(file.fileno())]
                command += ["--json-status-fd", str(status)] if status >= 0 else []
                passed = [file.fileno(), *([status] if status >= 0 else [])]
                # Without the user's variables: bubblewrap itself must not see an LD_PRELOAD.
                return run([*command, "--", *argv], {}, "/", *passed)
        except OSError as error:
            raise NotStarted("staging", None, f"the sandbox could not be made: {error.strerror}") from None


def _unnamed_file(home: Home) -> BinaryIO:
    path = home / f"options-{os.urandom(8).hex()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return os.fdopen(fd, "w+b")


class Program:
    """One run of the program. `pid` is its own id, `spared` are processes that must not get TERM."""

    def __init__(self, launcher: Launcher, argv: List[str], streams: Tuple[int, int], stderr: str) -> None:
        """Raises NotStarted. `stderr` is the file behind the second stream."""
        self._stderr = stderr
        self._stderr_begin = os.path.getsize(stderr)
        self._status = -1
        status = -1
        if launcher.sandboxed:
            self._status, status = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._process = launcher.start(argv, subprocess.DEVNULL, *streams, status=status)
        except NotStarted:
            self._close()
            raise
        finally:
            if status >= 0:
                os.close(status)
        self._lines = b""
        self.child = self._process.pid
        """The runner's child: the program, or bubblewrap."""
        self.pid = self._program_id() if launcher.sandboxed else self.child
        # Bubblewrap would die of it, and take the program with it.
        self.spared = [self.child] if launcher.sandboxed else []

    def ended(self, status: int) -> Exit:
        """Takes what wait() said of `child`. Raises NotStarted if bubblewrap could not run the program."""
        self._process.returncode = status  # so that it does not wait itself
        found = _exit(status)
        if self._status < 0:
            return found
        code = self._read_status("exit-code")
        self._close()
        if code is not None:
            return Exit(None, code - 128) if 128 < code < 160 else Exit(code, None)
        if found.signal is not None:
            return found
        raise self._sandbox_failure()

    def _program_id(self) -> int:
        until = time.monotonic() + _SETUP_SECONDS
        while time.monotonic() < until:
            select.select([self._status], [], [], until - time.monotonic())
            pid = self._read_status("child-pid")
            if pid is not None:
                return pid
            if self._at_end:
                break
        return self.child

    def _read_status(self, name: str) -> Optional[int]:
        self._at_end = False
        with contextlib.suppress(BlockingIOError):
            while True:
                more = os.read(self._status, 4096)
                if not more:
                    self._at_end = True
                    break
                self._lines += more
        for line in self._lines.splitlines():
            with contextlib.suppress(ValueError):
                value = json.loads(line.decode()).get(name)
                if isinstance(value, int):
                    return value
        return None

    def _sandbox_failure(self) -> NotStarted:
        with open(self._stderr, "rb") as file:
            file.seek(max(self._stderr_begin, os.path.getsize(self._stderr) - 4096))
            lines = file.read().decode(errors="replace").splitlines()
        said = [line[len("bwrap: ") :] for line in lines if line.startswith("bwrap: ")]
        last = said[-1] if said else "bubblewrap did not say why"
        failed = re.fullmatch(r"execvp (.*): ([^:]*)", last)
        if failed:
            return _not_found(
                failed[1], errno.ENOENT if failed[2] == os.strerror(errno.ENOENT) else 0, failed[2]
            )
        failed = re.fullmatch(r"Can't chdir to (.*): ([^:]*)", last)
        if failed:
            return _no_directory(failed[1], failed[2])
        return NotStarted("staging", None, f"the sandbox could not be made: {last}")

    def _close(self) -> None:
        if self._status >= 0:
            os.close(self._status)
            self._status = -1


def _bare(
    run: Callable[[List[str], Dict[str, str], str], subprocess.Popen[bytes]],
    argv: List[str],
    env: Dict[str, str],
    cwd: str,
) -> subprocess.Popen[bytes]:
    try:
        os.stat(cwd)
        if not os.path.isdir(cwd):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(cwd, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _no_directory(cwd, error.strerror or "") from None
    try:
        try:
            return run(argv, env, cwd)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without an interpreter line: do what execvp does.
            return run(["/bin/sh", _find(argv[0], env), *argv[1:]], env, cwd)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        if isinstance(error, OSError):
            raise _not_found(argv[0], error.errno or 0, error.strerror or "") from None
        raise _not_found(argv[0], 0, str(error)) from None


def _find(program: str, env: Dict[str, str]) -> str:
    if "/" in program:
        return program
    for directory in os.get_exec_path(env):
        path = os.path.join(directory, program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return program


def _not_found(program: str, number: int, reason: str) -> NotStarted:
    if number == errno.ENOENT:
        return NotStarted("not found", 127, f"{program}: no such program, or its interpreter is missing")
    return NotStarted("not found", 126, f"{program}: cannot be run: {reason}")


def _no_directory(path: str, reason: str) -> NotStarted:
    return NotStarted("not found", 126, f"working directory {path}: {reason}")


def _inherit(patterns: List[str], environment: Dict[str, str]) -> Dict[str, str]:
    # The module for patterns would compile each of them.
    names = {pattern for pattern in patterns if not pattern.endswith("*")}
    beginnings = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
    return {
        name: value for name, value in environment.items() if name in names or name.startswith(beginnings)
    }


def _limits(processes: int) -> List[Tuple[int, Tuple[int, int]]]:
    """RLIMIT_NPROC counts all tasks of the user on this node, so it lies above those that run now."""
    if not processes:
        return []
    with open("/proc/loadavg", encoding="ascii") as file:
        running = int(file.read().split()[3].partition("/")[2])
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    soft = running + processes
    return [(resource.RLIMIT_NPROC, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))]


def _exit(status: int) -> Exit:
    if os.WIFSIGNALED(status):
        return Exit(None, os.WTERMSIG(status))
    return Exit(os.WEXITSTATUS(status), None)
