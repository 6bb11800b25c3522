"""A PostgreSQL server of our own, on a Unix socket in a directory of its own."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest


class Server:
    """Makes databases."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._count = 0

    def database(self, encoding: str = "") -> str:
        """The URL of a new, empty one."""
        self._count += 1
        name = f"turnout{self._count}"
        more = f" ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0" if encoding else ""
        self.run("postgres", f"CREATE DATABASE {name}{more}")
        return self.url(name)

    def user(self) -> str:
        """The name of a new one, who owns nothing."""
        self._count += 1
        self.run("postgres", f"CREATE ROLE user{self._count} LOGIN")
        return f"user{self._count}"

    def run(self, database: str, *statements: str) -> None:
        """As the owner of all."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def url(self, name: str, user: str = "turnout") -> str:
        return f"postgresql://{user}@/{name}?host={self._socket}"


@contextlib.contextmanager
def running() -> Iterator[Server]:
    programs = _programs()
    home = Path(tempfile.mkdtemp(prefix="turnout-postgres-"))
    data = home / "data"
    user = _user()
    try:
        if user:
            os.chown(home, user.pw_uid, user.pw_gid)

        def run(program: str, *args: str) -> None:
            subprocess.run(
                [programs / program, "-D", data, *args],
                user=user and user.pw_uid,
                group=user and user.pw_gid,
                extra_groups=None if user is None else [],
                cwd=home,
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=60,
            )

        # Another locale than C: our tables must compare by code points all the same.
        run("initdb", "-A", "trust", "-U", "turnout", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        options = f"-k {home} -c listen_addresses= -c fsync=off -c max_connections=40 -c shared_buffers=32MB"
        run("pg_ctl", "-w", "-s", "-l", str(home / "log"), "-o", options, "start")
        try:
            yield Server(home)
        finally:
            run("pg_ctl", "-w", "-s", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _programs() -> Path:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    found = str(places[-1]) if places else shutil.which("initdb")
    if found:
        return Path(found).parent
    message = "PostgreSQL is not installed: apt-get install postgresql (make test does it for root)"
    if os.geteuid() == 0:
        pytest.fail(message)
    pytest.skip(message)


def _user() -> pwd.struct_passwd | None:
    """The server does not run as root."""
    if os.geteuid() != 0:
        return None
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    return accounts.get("postgres") or accounts["nobody"]
