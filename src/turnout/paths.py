"""The layout of the data directory. No other module knows it."""

from pathlib import Path


class Paths:
    """The directory has files of the service alone, files of the supervisor, and directories in which jobs work."""

    def __init__(self, data: Path) -> None:
        self.data = data

        # The service's own, mode 0600.
        self.database = data / "turnout.db"
        self.root_key = data / "root-key"
        self.job_secret = data / "job-secret"
        """The secret from which the keys of running jobs are computed."""
        self.lock = data / "lock"
        self.endpoint = data / "endpoint"
        """The endpoint of the last service. The command lines use the root key for this endpoint only."""

        self.staging = data / "staging"
        """The attempts whose outputs must be saved, and where to."""

        self.users = data / "users"
        """The uid of each project's jobs."""

        self.unread = data / "unread"
        """Lines from the supervisor that could not be read."""

        self.unreadable = data / "unreadable"
        """The rows of the database that could not be read."""

        self.removed = data / "removed"
        """A record of files that were removed while the service ran."""

        self.search = data / "search"
        """The cache of the search libraries."""

        self.clusters = data / "clusters"
        """For each remote cluster, a directory with a record of each attempt that it runs, and `runner-<hash>.pyz`."""

        # Jobs work in the directories below it. They cannot change this one.
        self.buckets = data / "buckets"

        # The supervisor's.
        self.attempts = data / "attempts"
        self.supervisor = data / "keeper"
        """The supervisor's socket, lock, journal and log. `keeper` is the supervisor's older name."""
        self.bad_journal = self.supervisor / "journal.bad"
        """Lines of the supervisor's journal that were damaged."""
        self.stage = self.supervisor / "stage"
        """Empty directories at which a replica's mounts are made, in its own mount namespace."""

        self.layers = data / "runtimes/.layers"
        """For each user of jobs, a mount of the layers of images that shows them as that user's."""

        self.runtimes = data / "runtimes"
        """A directory for each runtime, with `python`, `python2` and `python3`, which comes first on PATH."""

        self.environments = data / "environments"
        """Environments that were made for runtimes, each named by a hash of what it consists of. Jobs read them."""
        self.images = data / "images"
        """The cache of images: `layers`, which only their owner can enter, `downloads`, and the index of both."""

    def replica(self, attempt: object, replica: object) -> Path:
        """The directory of a replica: `stdout`, `stderr`, `marks`, and the workspace while the replica runs."""
        return Path(self.home(attempt, replica))

    def first_replica(self, attempt: object, replica: object) -> Path:
        """The replica's directory in the first version of Turnout, whose logs remain after an upgrade."""
        return self.attempts / str(attempt) / str(replica)

    def home(self, attempt: object, replica: object) -> str:
        """The directory of a replica, as text: each start needs it, and making a Path is slow."""
        return f"{self.attempts}/{attempt}_{replica}"

    @property
    def all_copies(self) -> Path:
        return self.data / "copies"

    @property
    def all_exported(self) -> Path:
        return self.data / "exported"

    def copies(self, attempt: object) -> Path:
        """The copies of an attempt's mounts: `0`, `1`, … in the order of the mounts."""
        return self.all_copies / str(attempt)

    def exported(self, attempt: object) -> Path:
        """Logs that are being exported to an object store."""
        return self.all_exported / str(attempt)

    def workspace(self, attempt: object, replica: object) -> Path:
        """Removed after the end, unless the job asks to keep it."""
        return self.replica(attempt, replica) / "space/work"
