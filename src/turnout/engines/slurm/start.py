"""The first program of each task on a node: gets the runner, tidies up the environment, becomes the runner.

The batch script carries the text of this file, `python3 -c <text> <endpoint> <gang> <role> <digest> <archive>`. So it
imports nothing of Turnout. It must compile on Python 3.6, so that an old Python gets the message that it is too old.
"""

# Most nodes have the runner already. What only the others need is imported where it is used, as it takes longer than
# all the rest.
import os
import stat
import sys
import time

OLDEST = (3, 8)
PATIENCE = 86400.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0
GAVE_UP = 75
LISTING = "files"
KEPT_SECONDS = 60 * 86400.0
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
    directory = cache()
    unpacked = os.path.join(directory, f"runner-{digest}-{sys.implementation.cache_tag}")
    address = f"{gang}/{role}-{index}"
    if is_complete(unpacked) and touch(unpacked):
        become(unpacked, [endpoint, address])
    else:
        if not (archive and is_whole(archive, digest)):
            archive = fetch(f"{endpoint}/runner/v1/{digest}.pyz", digest, directory)
        unpacked = unpack(archive, unpacked)
        python = sys.executable
        os.execv(python, [python, "-S", unpacked, endpoint, address])


def become(directory: str, arguments: "list[str]") -> None:
    """Runs what is in the directory in this process: a second start of Python would take as long as all the rest."""
    from importlib.machinery import SourceFileLoader

    path = os.path.join(directory, "__main__.py")
    sys.argv[:] = [directory, *arguments]
    sys.path[0] = directory
    code = SourceFileLoader("__main__", path).get_code("__main__")
    assert code is not None
    exec(code, {"__name__": "__main__", "__file__": path, "__builtins__": __builtins__})


def is_complete(directory: str) -> bool:
    """What cleans up temporary directories removes single files that nobody has read for long."""
    try:
        with open(os.path.join(directory, LISTING), encoding="utf-8") as file:
            return set(file.read().splitlines()) <= set(files(directory))
    except OSError:
        return False


def files(directory: str) -> "list[str]":
    return [
        os.path.join(top, name)[len(directory) :] for top, _, names in os.walk(directory) for name in names
    ]


def touch(path: str) -> bool:
    """Returns whether the runner is there, and sets its time: a runner that is in use is not removed as old."""
    try:
        os.utime(path)
    except OSError:
        return False
    return True


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


def unpack(archive: str, target: str) -> str:
    """The path of a directory with the runner, compiled for this interpreter; or else of the archive itself.

    Python would compile what is in an archive at each start.
    """
    import compileall
    import shutil
    import tempfile
    import zipfile

    directory = os.path.dirname(target)
    temporary = ""
    try:
        remove_old(directory)
        temporary = tempfile.mkdtemp(dir=directory)
        with zipfile.ZipFile(archive) as file:
            file.extractall(temporary)
        compileall.compile_dir(temporary, quiet=2)
        listed = "\n".join(files(temporary))
        with open(os.path.join(temporary, LISTING), "w", encoding="utf-8") as listing:
            listing.write(listed)
        if os.path.isdir(target) and not is_complete(target):
            os.rename(target, tempfile.mkdtemp(dir=directory))
        os.rename(temporary, target)
    except (OSError, zipfile.BadZipFile):  # the disk is full, or another runner was faster
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    return target if is_complete(target) else archive


def is_whole(path: str, digest: str) -> bool:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False


def fetch(url: str, digest: str, directory: str) -> str:
    """The path of the runner, which stays in the directory for the next one on this node."""
    import hashlib
    import tempfile

    path = os.path.join(directory, f"runner-{digest}.pyz")
    if is_whole(path, digest):
        touch(path)
        return path
    data = download(url)
    if hashlib.sha256(data).hexdigest() != digest:
        fail(f"{url} has another SHA-256 than the service announced")
    descriptor, temporary = tempfile.mkstemp(dir=directory)
    with open(descriptor, "wb") as file:
        file.write(data)
    os.replace(temporary, path)
    return path


def remove_old(directory: str) -> None:
    """Runners of earlier versions. Those that still run were used lately: a use is as new as its file."""
    import shutil

    oldest = time.time() - KEPT_SECONDS
    for entry in os.scandir(directory):
        try:
            if entry.stat(follow_symlinks=False).st_mtime >= oldest:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
        except OSError:  # another runner was faster
            continue


def cache() -> str:
    """Nobody else can write to it. Where another user has taken its name, it is a new one."""
    path = os.path.join(scratch(), f"turnout-{os.getuid()}")
    os.makedirs(path, 0o700, exist_ok=True)
    found = os.lstat(path)
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    if ours:
        return path
    import tempfile

    return tempfile.mkdtemp(dir=scratch())


def scratch() -> str:
    """The first writable directory, as for the runner."""
    names = ("TURNOUT_SCRATCH", "SLURM_TMPDIR", "TMPDIR")
    paths = [os.environ[name] for name in names if os.environ.get(name)]
    return next((path for path in paths if os.access(path, os.W_OK | os.X_OK)), "/tmp")


def download(url: str) -> bytes:
    """Waits for a service that is away."""
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
