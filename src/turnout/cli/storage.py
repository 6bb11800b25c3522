"""`turnout ls` and `turnout rm`, and the objects of the service for `turnout cp`."""

import re
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from turnout.cli import table
from turnout.cli.client import Client, Document, EndpointUnreachable, Rejected, RetryWindow
from turnout.cli.login import connect
from turnout.cli.options import Form
from turnout.cli.parallel import TaskPool
from turnout.errors import Invalid, NotFound

SCHEMES = ("cos", "obs", "gs", "s3")

Result = TypeVar("Result")


class Url(NamedTuple):
    scheme: str
    bucket: str
    key: str
    """A prefix if it is empty or ends with a slash."""

    @classmethod
    def parse(cls, text: str) -> "Url":
        scheme, separator, rest = text.partition("://")
        bucket, _, key = rest.partition("/")
        if not separator or scheme not in SCHEMES or not bucket:
            known = ", ".join(f"{name}://bucket" for name in SCHEMES)
            raise Invalid(f"{text!r} is not the URL of a bucket: it must begin with one of {known}")
        return cls(scheme, bucket, key).checked()

    def checked(self) -> "Url":
        """Raises Invalid if it is not UTF-8: unlike a file, an object cannot have any bytes as its name."""
        try:
            str(self).encode()
        except UnicodeEncodeError:
            raise Invalid(f"{str(self)!r} cannot be an object: its name must be UTF-8") from None
        return self

    @property
    def is_directory(self) -> bool:
        """Whether it is a bucket or ends with a slash."""
        return not self.key or self.key.endswith("/")

    @property
    def directory(self) -> "Url":
        """The same URL with a slash at its end."""
        return self if self.is_directory else self._replace(key=self.key + "/")

    @property
    def name(self) -> str:
        return self.key.rstrip("/").rpartition("/")[2] or self.bucket

    def at(self, key: str) -> "Url":
        return self._replace(key=key)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"


def is_url(text: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]*://", text) is not None


class BucketClient:
    """The service's objects. Thread-safe: each thread has its own connection."""

    def __init__(self, endpoint: str | None) -> None:
        self._first = connect(endpoint)
        self._first.get("whoami")  # reports a wrong key or a missing service before the first copy
        self._local = threading.local()
        self.cancelled = threading.Event()
        """Set when everything should end. Long operations check it."""

    @property
    def client(self) -> Client:
        if not hasattr(self._local, "client"):
            self._local.client = Client(self._first.endpoint, self._first.key)
        return self._local.client

    def retry(self, call: Callable[[], Result], done: Callable[[], int] = lambda: 0) -> Result:
        """Retries while the service is unreachable or busy, for a limited time that restarts whenever `done` grows."""
        window, before = RetryWindow(lambda _: None), done()
        while True:
            try:
                return call()
            except (EndpointUnreachable, Rejected) as error:
                busy = isinstance(error, EndpointUnreachable) or error.code in ("TimedOut", "NotStored")
                if not busy or self.cancelled.is_set():
                    raise
                if done() > before:
                    window, before = RetryWindow(lambda _: None), done()
                window.pause(error)

    def all(self) -> list[Document]:
        return self.client.get("buckets")["buckets"]

    def below(self, url: Url, delimiter: str = "", limit: int = 0) -> Iterator[Document]:
        """Objects whose keys begin with the URL's key. With a delimiter, also prefixes as `{"prefix": …}`."""
        after, count = "", 0
        while True:
            page = self._page(str(url), delimiter, after, str(limit - count) if limit else "")
            entries = [*page["objects"], *({"prefix": prefix} for prefix in page["prefixes"])]
            entries.sort(key=lambda entry: entry.get("key") or entry["prefix"])
            yield from entries
            after, count = page["next"], count + len(entries)
            if not after or (limit and count >= limit):
                return

    def find(self, url: Url) -> Document | None:
        """The object with exactly this key."""
        if url.is_directory:
            return None
        try:
            return self.retry(lambda: self.client.get("object", "info", url=str(url)))
        except Rejected as error:
            if error.code == "NotFound":
                return None
            raise

    def holds(self, url: Url) -> bool:
        """Whether an object has this prefix. False for a bucket that does not exist."""
        try:
            return next(self.below(url.directory, limit=1), None) is not None
        except Rejected as error:
            if error.code == "NotFound":
                return False
            raise

    def delete(self, url: Url) -> None:
        self.retry(lambda: self.client.send("DELETE", "object", query={"url": str(url)}))

    def _page(self, url: str, delimiter: str, after: str, limit: str) -> Document:
        return self.retry(
            lambda: self.client.get("objects", url=url, delimiter=delimiter, after=after, limit=limit)
        )


def ls(text: str, long: bool, recursive: bool, endpoint: str | None, output: Form) -> None:
    buckets = BucketClient(endpoint)
    if not text:
        return _show_buckets(buckets.all(), long, output)
    url = Url.parse(text)
    single = None if buckets.holds(url) or url.is_directory else buckets.find(url)
    if single:
        entries, base = [single], url.key.rpartition("/")[0]
    else:
        entries, base = list(buckets.below(url.directory, "" if recursive else "/")), url.directory.key
    if not entries and url.key:
        raise NotFound(f"{url} does not exist")
    base = f"{base}/" if base and not base.endswith("/") else base
    if output.is_document:
        return table.show_document([_as_json(url, entry) for entry in entries], output)
    names = [(entry.get("key") or entry["prefix"]).removeprefix(base) or "./" for entry in entries]
    if not long:
        for name in names:
            print(name)
        return None
    rows = [
        [human(entry["size"]) if "size" in entry else "", _when(entry), name]
        for entry, name in zip(entries, names, strict=True)
    ]
    return table.show_wrapped(["SIZE", "MODIFIED", "NAME"], rows, whole=output is Form.WIDE)


def rm(texts: list[str], recursive: bool, endpoint: str | None) -> None:
    urls = [Url.parse(text) for text in texts]
    buckets = BucketClient(endpoint)
    with TaskPool(buckets.cancelled) as tasks:
        for url in urls:
            for target in _to_remove(buckets, url, recursive):
                tasks.submit(lambda target=target: buckets.delete(target))


def human(size: int) -> str:
    """In the format of `ls -h`."""
    amount, unit = float(size), "B"
    for unit in ("B", "K", "M", "G", "T", "P"):
        if amount < 1024 or unit == "P":
            break
        amount /= 1024
    if unit == "B":
        return f"{size} B"
    return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"


def _to_remove(buckets: BucketClient, url: Url, recursive: bool) -> Iterator[Url]:
    single = buckets.find(url)
    if single:
        yield url
    if not recursive:
        if not single and buckets.holds(url):
            raise Invalid(f"{url} is a directory: remove it with -r")
        if not single:
            raise NotFound(f"{url} does not exist")
        return
    exists = single is not None
    for entry in buckets.below(url.directory):
        exists = True
        yield url.at(entry["key"])
    if not exists:
        raise NotFound(f"{url} does not exist")


def _show_buckets(found: list[Document], long: bool, output: Form) -> None:
    if output.is_document:
        return table.show_document(found, output)
    if long:
        rows = [[table.clock(bucket["created"]), bucket["name"]] for bucket in found]
        return table.show_wrapped(["CREATED", "NAME"], rows, whole=output is Form.WIDE)
    for bucket in found:
        print(bucket["name"])
    return None


def _as_json(url: Url, entry: Document) -> Document:
    if "prefix" in entry:
        return {"url": str(url.at(entry["prefix"])), "prefix": True}
    return {"url": str(url.at(entry["key"]))} | entry


def _when(entry: Document) -> str:
    return table.clock(entry["modified"]) if "modified" in entry else ""
