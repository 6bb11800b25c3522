"""`turnout cp`: what is copied where. The copying itself is in `transfer`."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from turnout.cli import entry
from turnout.cli.progress import Progress
from turnout.cli.storage import Buckets, Url, is_url
from turnout.cli.together import Together
from turnout.cli.transfer import Copy, Place, Transfer
from turnout.errors import Invalid, NotFound

STREAM = "-"


class Target(NamedTuple):
    place: Place
    takes_one: bool
    """Whether a single thing goes below it."""
    takes_tree: bool
    """Whether a tree goes below it, instead of becoming it: as with `cp -r`, if it is there already."""


def cp(words: list[str], recursive: bool, endpoint: str | None) -> None:
    if len(words) < 2:
        raise Invalid("say what to copy, and where to; see `turnout cp --help`")
    *sources, last = words
    if STREAM in words:
        return _stream(words, endpoint)
    if not any(is_url(word) for word in sources) and not is_url(last):
        raise Invalid("neither is in a bucket: one of them must be like gs://bucket/key")
    places = [_place(word) for word in sources]
    target = _place(last)
    buckets = Buckets(endpoint)
    goal = _goal(buckets, target, last, len(sources))
    with Progress() as progress, Together(buckets.given_up) as together:
        transfer = Transfer(buckets, progress)
        taken: set[str] = set()
        for place, word in zip(places, sources, strict=True):
            for one in _copies(buckets, place, word, goal, recursive):
                if isinstance(one.target, Url):
                    one.target.checked()
                if len(sources) > 1 and str(one.target) in taken:
                    raise Invalid(f"{one.target} would come from more than one place: copy them one by one")
                taken.add(str(one.target))
                progress.expect(one.size)
                together.do(lambda one=one: transfer.copy(one))
    return None


def _stream(words: list[str], endpoint: str | None) -> None:
    if len(words) != 2 or words.count(STREAM) != 1:
        raise Invalid("- is copied to one place, or comes from one")
    source, target = words
    url = Url.parse(target if source == STREAM else source)
    if url.is_place:
        raise Invalid(f"{url} names no object: give it a whole name, as - has none")
    transfer = Transfer(Buckets(endpoint))
    transfer.from_stdin(url) if source == STREAM else transfer.to_stdout(url)


def _place(word: str) -> Place:
    return Url.parse(word) if is_url(word) else Path(word)


def _goal(buckets: Buckets, target: Place, word: str, sources: int) -> Target:
    if isinstance(target, Url):
        there, place = buckets.holds(target), target.is_place
    else:
        there, place = target.is_dir(), word.endswith("/")
    if sources > 1 and not there and not place:
        raise Invalid(f"{word} must be a directory or end with a slash, as there are several things to copy")
    return Target(target, there or place, there or sources > 1)


def _copies(buckets: Buckets, source: Place, word: str, goal: Target, recursive: bool) -> Iterator[Copy]:
    if isinstance(source, Path):
        return _from_here(source, word, goal, recursive)
    return _from_bucket(buckets, source, goal, recursive)


def _from_here(source: Path, word: str, goal: Target, recursive: bool) -> Iterator[Copy]:
    status = source.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise Invalid(f"{source} is a link, which is not followed: name what it points to")
    if stat.S_ISREG(status.st_mode):
        target = _below(goal.place, source.name) if goal.takes_one else goal.place
        yield Copy(source, target, status.st_size)
        return
    if not stat.S_ISDIR(status.st_mode):
        raise Invalid(f"{source} is neither a file nor a directory")
    if not recursive:
        raise Invalid(f"{source} is a directory: copy it with -r")
    name = os.path.basename(word.rstrip("/"))
    contents_only = name in ("", ".", "..")
    top = _below(goal.place, name) if goal.takes_tree and not contents_only else goal.place
    for file, size in _files(source):
        yield Copy(file, _below(top, file.relative_to(source).as_posix()), size)


def _from_bucket(buckets: Buckets, source: Url, goal: Target, recursive: bool) -> Iterator[Copy]:
    found = buckets.find(source)
    if found:
        target = _below(goal.place, source.name) if goal.takes_one else goal.place
        yield Copy(source, target, found["size"])
        return
    if not buckets.holds(source):
        raise NotFound(f"there is no {source}")
    if not recursive:
        raise Invalid(f"{source} is a directory: copy it with -r")
    top = _below(goal.place, source.name) if goal.takes_tree else goal.place
    base = source.place.key
    for one in buckets.below(source.place):
        name = one["key"].removeprefix(base)
        if name and not name.endswith("/"):
            yield Copy(source.at(one["key"]), _below(top, name), one["size"])


def _below(top: Place, name: str) -> Place:
    if isinstance(top, Url):
        return top.at(top.place.key + name)
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Invalid(f"the key {name!r} would lead out of {top}, so it is not copied")
    return top.joinpath(*parts)


def _files(directory: Path) -> Iterator[tuple[Path, int]]:
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda one: one.name)
    for one in found:
        path = directory / one.name
        if one.is_dir(follow_symlinks=False):
            yield from _files(path)
        elif one.is_file(follow_symlinks=False):
            yield path, one.stat(follow_symlinks=False).st_size
        else:
            entry.complain("turnout", f"{path} is {'a link' if one.is_symlink() else 'no file'}: not copied")
