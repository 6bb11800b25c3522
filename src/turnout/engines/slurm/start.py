"""The first program of each task on a node: gets the runner, tidies up the environment, becomes the runner.

The batch script carries the text of this file, `python3 -c <text> <endpoint> <gang> <role> <digest> <archive>`. So it
imports nothing of Turnout, and the oldest Python that it must understand well enough to complain is 3.6.
"""

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import time

OLDEST = (3, 8)
PATIENCE = 86400.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0
GAVE_UP = 75
STEP_PREFIXES = ("SLURM_", "SRUN_", "PMI_", "PMIX_", "HOSTNAME")
KEPT = ("SLURM_CONF", "SLURM_TMPDIR")


def main() -> None:
    if sys.version_info < OLDEST:
        fail(
            f"the node's {sys.executable} is Python {sys.version.split()[0]}, and the runner needs 3.8 or newer"
        )
    endpoint, gang, role, digest, archive = sys.argv[1:6]
    index = os.environ["SLURM_PROCID"]
    leave_step()
    if not (archive and is_whole(archive, digest)):
        archive = fetch(f"{endpoint}/runner/v1/{digest}.pyz", digest)
    python = sys.executable
    os.execv(python, [python, archive, endpoint, f"{gang}/{role}-{index}"])


def leave_step() -> None:
    """A program that starts processes of its own would take the variables of this step for theirs.

    HOSTNAME is that of the node on which the batch script runs.
    """
    job = os.environ.pop("TURNOUT_SLURM_JOB", "")
    for name in list(os.environ):
        if name.startswith(STEP_PREFIXES) and name not in KEPT:
            del os.environ[name]
    for line in job.splitlines():
        name, _, value = line.partition("=")
        os.environ[name] = value


def is_whole(path: str, digest: str) -> bool:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False


def fetch(url: str, digest: str) -> str:
    """The path of the runner, which stays in a directory of this user for the next one on this node."""
    directory = cache()
    path = os.path.join(directory, f"runner-{digest}.pyz")
    if is_whole(path, digest):
        return path
    data = download(url)
    if hashlib.sha256(data).hexdigest() != digest:
        fail(f"{url} has another SHA-256 than the service announced")
    descriptor, temporary = tempfile.mkstemp(dir=directory)
    with open(descriptor, "wb") as file:
        file.write(data)
    os.replace(temporary, path)
    return path


def cache() -> str:
    """Nobody else can write to it. Where another user has taken its name, it is a new one."""
    path = os.path.join(scratch(), f"turnout-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return path if ours else tempfile.mkdtemp(dir=scratch())


def scratch() -> str:
    """The first writable directory, as for the runner."""
    names = ("TURNOUT_SCRATCH", "SLURM_TMPDIR", "TMPDIR")
    paths = [os.environ[name] for name in names if os.environ.get(name)]
    return next((path for path in paths if os.access(path, os.W_OK | os.X_OK)), "/tmp")


def download(url: str) -> bytes:
    """Waits for a service that is away."""
    # They take longer to import than all the rest, and most nodes have the runner already.
    import ssl
    import urllib.error
    import urllib.request

    # The digest says whether it is the right file. So the certificate does not matter, and no secret is sent.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    no_proxy = urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(no_proxy, urllib.request.HTTPSHandler(context=context))
    end = time.monotonic() + float(os.environ.get("TURNOUT_PATIENCE") or PATIENCE)
    pause = FIRST_PAUSE
    while True:
        try:
            with opener.open(url, timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            trouble = f"{error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                fail(f"{url} cannot be fetched: {trouble}")
        except Exception as error:  # noqa: BLE001 (whatever a broken connection raises, the next try may work)
            trouble = str(error)
        if pause == FIRST_PAUSE:
            say(f"{url} cannot be fetched, trying again: {trouble}")
        if time.monotonic() + pause > end:
            fail(f"{url} cannot be fetched: {trouble}")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def fail(message: str) -> None:
    say(message)
    sys.exit(GAVE_UP)


def say(message: str) -> None:
    sys.stderr.write(f"turnout: {message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
