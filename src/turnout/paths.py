"""Where everything lies below the data directory. The only module that knows."""

from pathlib import Path


class Paths:
    """Two owners share the directory: what the service keeps to itself, and what the job's user works in."""

    def __init__(self, data: Path) -> None:
        self.data = data

        # The service's own, mode 0600.
        self.database = data / "turnout.db"
        self.root_key = data / "root-key"
        self.lock = data / "lock"
        self.staging = data / "staging"
        """Which attempts have something to bring back, and where to."""

        self.search = data / "search"
        """What the libraries of a search would else work out again."""

        # The job's user owns these.
        self.attempts = data / "attempts"
        self.buckets = data / "buckets"
        self.keeper = data / "keeper"
        """The keeper's socket, lock, journal and log."""
        self.stage = self.keeper / "stage"
        """Empty directories that a replica's mounts are shown at, in a mount namespace of its own."""

        self.runtimes = data / "runtimes"
        """For each runtime a directory of program names (`python`, `python2`, `python3`) that goes first on PATH."""

    def replica(self, attempt: object, replica: object) -> Path:
        """Holds `stdout`, `stderr`, `marks`, and the workspace while it runs."""
        return Path(self.home(attempt, replica))

    def home(self, attempt: object, replica: object) -> str:
        """The same as text, for every start: to make a Path takes longer than the rest of it."""
        return f"{self.attempts}/{attempt}_{replica}"

    def copies(self, attempt: object) -> Path:
        """Of what had to be fetched for an attempt, or has to be brought away: `0`, `1`… as its mounts are."""
        return self.data / "copies" / str(attempt)

    def exported(self, attempt: object) -> Path:
        """Logs on their way to an object store."""
        return self.data / "exported" / str(attempt)

    def workspace(self, attempt: object, replica: object) -> Path:
        """Gone after the end, unless the job asks to keep it."""
        return self.replica(attempt, replica) / "work"
