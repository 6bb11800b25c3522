"""`turnout cp`: decides what is copied where. `transfer` copies it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from turnout.cli import entry
from turnout.cli.parallel import TaskPool
from turnout.cli.progress import Progress
from turnout.cli.storage import BucketClient, Url, is_url
from turnout.cli.transfer import Copy, Location, Transfer
from turnout.errors import Invalid, NotFound

STREAM = "-"


class Target(NamedTuple):
    location: Location
    takes_file: bool
    """Whether a single file keeps its name inside the target, because the target is a directory."""
    takes_tree: bool
    """Whether a tree becomes a subdirectory of the target: if the target already exists, as with `cp -r`."""


def cp(words: list[str], recursive: bool, endpoint: str | None) -> None:
    if len(words) < 2:
        raise Invalid("name a source and a target; see `turnout cp --help`")
    *sources, last = words
    if STREAM in words:
        return _stream(words, endpoint)
    if not any(is_url(word) for word in sources) and not is_url(last):
        raise Invalid("source or target must be in a bucket, such as gs://bucket/key")
    locations = [_location(word) for word in sources]
    target = _location(last)
    buckets = BucketClient(endpoint)
    destination = _target(buckets, target, last, len(sources))
    with Progress() as progress, TaskPool(buckets.cancelled) as tasks:
        transfer = Transfer(buckets, progress)
        taken: set[str] = set()
        for location, word in zip(locations, sources, strict=True):
            for copy in _copies(buckets, location, word, destination, recursive):
                if isinstance(copy.target, Url):
                    copy.target.checked()
                if len(sources) > 1 and str(copy.target) in taken:
                    raise Invalid(f"two sources have the target {copy.target}: copy them one by one")
                taken.add(str(copy.target))
                progress.expect(copy.size)
                tasks.submit(lambda copy=copy: transfer.copy(copy))
    return None


def _stream(words: list[str], endpoint: str | None) -> None:
    if len(words) != 2 or words.count(STREAM) != 1:
        raise Invalid("with -, give exactly one source and one target, and - for one of them")
    source, target = words
    url = Url.parse(target if source == STREAM else source)
    if url.is_directory:
        raise Invalid(f"{url} does not name an object: with -, give the full name, such as gs://bucket/key")
    transfer = Transfer(BucketClient(endpoint))
    transfer.from_stdin(url) if source == STREAM else transfer.to_stdout(url)


def _location(word: str) -> Location:
    return Url.parse(word) if is_url(word) else Path(word)


def _target(buckets: BucketClient, target: Location, word: str, sources: int) -> Target:
    if isinstance(target, Url):
        exists, is_directory = buckets.holds(target), target.is_directory
    else:
        exists, is_directory = target.is_dir(), word.endswith("/")
    if sources > 1 and not exists and not is_directory:
        raise Invalid(f"{word} must be a directory or end with a slash, because there are several sources")
    return Target(target, exists or is_directory, exists or sources > 1)


def _copies(
    buckets: BucketClient, source: Location, word: str, destination: Target, recursive: bool
) -> Iterator[Copy]:
    if isinstance(source, Path):
        return _from_disk(source, word, destination, recursive)
    return _from_bucket(buckets, source, destination, recursive)


def _from_disk(source: Path, word: str, destination: Target, recursive: bool) -> Iterator[Copy]:
    status = source.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise Invalid(f"{source} is a link, and links are not followed: name the file it points to")
    if stat.S_ISREG(status.st_mode):
        target = _below(destination.location, source.name) if destination.takes_file else destination.location
        yield Copy(source, target, status.st_size)
        return
    if not stat.S_ISDIR(status.st_mode):
        raise Invalid(f"{source} is neither a file nor a directory")
    if not recursive:
        raise Invalid(f"{source} is a directory: copy it with -r")
    name = os.path.basename(word.rstrip("/"))
    contents_only = name in ("", ".", "..")
    top = (
        _below(destination.location, name)
        if destination.takes_tree and not contents_only
        else destination.location
    )
    for file, size in _files(source):
        yield Copy(file, _below(top, file.relative_to(source).as_posix()), size)


def _from_bucket(buckets: BucketClient, source: Url, destination: Target, recursive: bool) -> Iterator[Copy]:
    found = buckets.find(source)
    if found:
        target = _below(destination.location, source.name) if destination.takes_file else destination.location
        yield Copy(source, target, found["size"])
        return
    if not buckets.holds(source):
        raise NotFound(f"{source} does not exist")
    if not recursive:
        raise Invalid(f"{source} is a directory: copy it with -r")
    top = _below(destination.location, source.name) if destination.takes_tree else destination.location
    base = source.directory.key
    for info in buckets.below(source.directory):
        name = info["key"].removeprefix(base)
        if name and not name.endswith("/"):
            yield Copy(source.at(info["key"]), _below(top, name), info["size"])


def _below(top: Location, name: str) -> Location:
    if isinstance(top, Url):
        return top.at(top.directory.key + name)
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Invalid(f"the key {name!r} would lead out of {top}: it is not copied")
    return top.joinpath(*parts)


def _files(directory: Path) -> Iterator[tuple[Path, int]]:
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda file: file.name)
    for file in found:
        path = directory / file.name
        if file.is_dir(follow_symlinks=False):
            yield from _files(path)
        elif file.is_file(follow_symlinks=False):
            yield path, file.stat(follow_symlinks=False).st_size
        else:
            entry.print_error(
                "turnout", f"skipped {path}: it is {'a link' if file.is_symlink() else 'not a file'}"
            )
