"""Where everything lies below the data directory. The only module that knows."""

from pathlib import Path
from typing import NamedTuple


class Paths(NamedTuple):
    """Two owners share the directory: what the service keeps to itself, and what the job's user works in."""

    data: Path

    # The service's own, mode 0600.

    @property
    def database(self) -> Path:
        return self.data / "turnout.db"

    @property
    def root_key(self) -> Path:
        return self.data / "root-key"

    @property
    def lock(self) -> Path:
        return self.data / "lock"

    @property
    def secret(self) -> Path:
        """The key that page tokens and links are signed with."""
        return self.data / "secret"

    # The job's user owns these.

    @property
    def attempts(self) -> Path:
        return self.data / "attempts"

    @property
    def buckets(self) -> Path:
        return self.data / "buckets"

    @property
    def keeper(self) -> Path:
        """The keeper's socket, lock, journal and log."""
        return self.data / "keeper"

    @property
    def runtimes(self) -> Path:
        """For each runtime a directory of program names (`python`, `python2`, `python3`) that goes first on PATH."""
        return self.data / "runtimes"

    def replica(self, attempt: object, replica: object) -> Path:
        """Holds `stdout`, `stderr`, `marks`, and the workspace while it runs."""
        return self.attempts / f"{attempt}_{replica}"
