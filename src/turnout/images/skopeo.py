"""Runs skopeo, which speaks to registries and reads local images: manifests, configs, and whole images."""

import asyncio
import base64
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec

from turnout import pools
from turnout.child_processes.bootstrap import Identity
from turnout.child_processes.child import ChildProgram
from turnout.errors import Denied, Misconfigured, NotFound, TurnoutError, Unavailable
from turnout.images.fetcher import AUTH_FILE, CERTIFICATES, INTERNAL, Fetch
from turnout.images.manifest import BadImage
from turnout.images.reference import Reference
from turnout.images.space import DiskFull
from turnout.registries import Registry

_PROGRAM = ChildProgram("fetcher of images", "turnout.images.fetcher")
_PLACES = "/usr/local/bin:/usr/bin:/bin"
_POLICY = Path("/etc/containers/policy.json")
_LARGEST_DOCUMENT = 4 << 20
_LARGEST_MESSAGE = 16 << 10
_DOCUMENT_SECONDS = 60

_WRONG = re.compile(r"did not match|does not match|mismatch", re.IGNORECASE)
_DENIED = re.compile(
    r"unauthorized|authentication required|access.*denied|denied:|\b40[13]\b|forbidden", re.IGNORECASE
)
_MISSING = re.compile(
    r"manifest unknown|name unknown|not found|\b404\b|no such file|does not exist|no image found",
    re.IGNORECASE,
)
_FULL = re.compile(r"no space left|disk quota exceeded", re.IGNORECASE)
_TOO_LARGE = re.compile(r"file too large", re.IGNORECASE)
_UNREACHABLE = re.compile(
    r"connection re|no such host|timeout|timed out|\bEOF\b|broken pipe|i/o error|network is|refused|x509|tls:"
    r"|server misbehaving|\b5\d\d\b|toomanyrequests|\b429\b|server gave HTTP response|no route|reset",
    re.IGNORECASE,
)


class Unreachable(Unavailable):
    """The registry did not answer, or the connection broke. The same request may succeed later."""


class Skopeo:
    """One image at one place. Its methods raise TurnoutError."""

    def __init__(
        self,
        source: str,
        shown: str,
        registry: Registry | None,
        directory: Path,
        identity: Identity | None,
        proxies: Mapping[str, str],
    ) -> None:
        """`source`: skopeo's name, such as `docker://registry/repository`, without tag for a registry.

        `directory`: where it may keep files; it belongs to the identity that skopeo runs as.
        """
        self._source = source
        self._shown = shown
        self._registry = registry
        self._directory = directory
        self._identity = identity
        self._proxies = proxies

    async def manifest(self, name: str) -> bytes:
        """`name`: `:tag` or `@digest`; empty for a local image."""
        return await self._document("inspect", "--raw", *self._options(""), self._source + name)

    async def config(self, name: str) -> bytes:
        return await self._document("inspect", "--raw", "--config", *self._options(""), self._source + name)

    async def copy(self, name: str, present: Mapping[str, int], wanted: Mapping[str, int]) -> None:
        """Copies the layers to `blobs/sha256` of the directory. Those that are there already are not fetched again.

        `present` and `wanted`: see Fetch. If this is cancelled, complete layers stay.
        """
        options = ("--quiet", "--dest-oci-accept-uncompressed-layers", *self._options("src-"))
        command = ("copy", *options, self._source + name, f"oci:{self._directory}:image")
        await self._run(*command, present=present, wanted=wanted)

    def _options(self, side: str) -> list[str]:
        """How to reach the registry. Nothing that the operator's own tools would use."""
        if not self._source.startswith("docker://"):
            return []
        registry = self._registry or Registry()
        options = [
            f"--{side}cert-dir={self._directory}/{CERTIFICATES}",
            f"--{side}tls-verify={str(not registry.http).lower()}",
        ]
        known = registry.username
        return [*options, f"--{side}authfile={AUTH_FILE}" if known else f"--{side}no-creds"]

    async def _document(self, *command: str) -> bytes:
        try:
            async with asyncio.timeout(_DOCUMENT_SECONDS):
                return await self._run(*command)
        except TimeoutError:
            raise Unreachable(f"{self._place} did not answer within {_DOCUMENT_SECONDS} seconds") from None

    async def _run(
        self, *command: str, present: Mapping[str, int] | None = None, wanted: Mapping[str, int] | None = None
    ) -> bytes:
        setup = await self._setup(command)
        setup.present, setup.wanted = dict(present or {}), dict(wanted or {})
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LARGEST_DOCUMENT,
            cwd="/",
            start_new_session=True,
        )
        assert process.stdin
        assert process.stdout
        assert process.stderr
        try:
            process.stdin.write(msgspec.json.encode(setup) + b"\n")
            output, message = await asyncio.gather(
                _read(process.stdout, _LARGEST_DOCUMENT), _read(process.stderr, _LARGEST_MESSAGE)
            )
            code = await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            process.stdin.close()
        if code != 0:
            raise self._failure(message.decode("utf-8", "replace"), code)
        return output

    async def _setup(self, command: tuple[str, ...]) -> Fetch:
        program = shutil.which("skopeo", path=_PLACES)
        if program is None:
            raise Misconfigured(
                "skopeo, which fetches images, is not installed on this machine: apt-get install skopeo"
            )
        policy = [] if await pools.disk.run(pools.OWN, _POLICY.exists) else ["--insecure-policy"]
        user = self._identity
        home = str(self._directory)
        places = {"PATH": _PLACES, "HOME": home, "XDG_RUNTIME_DIR": home, "TMPDIR": home}
        return Fetch(
            parent=os.getpid(),
            uid=user.uid if user else -1,
            gid=user.gid if user else -1,
            groups=list(user.groups) if user else [],
            command=[program, *policy, f"--tmpdir={home}", *command],
            environment={**self._proxies, **places},
            auth=await pools.disk.run(pools.OWN, self._auth),
            ca=await pools.disk.run(pools.OWN, self._certificates),
            directory=home,
            outside=Reference(self._place, "").host if self._is_unknown else "",
        )

    def _auth(self) -> str:
        registry = self._registry
        if registry is None or not registry.username:
            return '{"auths": {}}'
        login = base64.b64encode(f"{registry.username}:{registry.secret()}".encode()).decode()
        host = self._source.removeprefix("docker://").partition("/")[0]
        return msgspec.json.encode({"auths": {host: {"auth": login}}}).decode()

    def _certificates(self) -> str:
        ca = self._registry.ca if self._registry else ""
        try:
            return Path(ca).read_text() if ca else ""
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(f"[registries] ca = {ca!r} cannot be read: {error}") from None

    def _failure(self, text: str, code: int) -> TurnoutError:
        """skopeo's message, which is one line of logrus, as an error that says what to do."""
        why = _readable(text) or f"skopeo ended with {code}"
        if why == INTERNAL:
            return not_outside(self._shown, self._place)
        if _FULL.search(why):
            return DiskFull(f"the disk is full: the image {self._shown} could not be stored")
        if _TOO_LARGE.search(why) or code == -signal.SIGXFSZ:
            return Unreachable(f"{self._place} sent more than the image's manifest announces")
        if _WRONG.search(why):
            return BadImage(f"the image {self._shown} is damaged in its registry: {why}")
        if _DENIED.search(why):
            hint = (
                "the registry refuses the credentials of this project"
                if self._registry and self._registry.username
                else "no credentials for this registry may be used by this project"
            )
            return Denied(
                f"the image {self._shown} cannot be pulled: {hint}, or the image does not exist. An operator can set "
                f"[registries.X] host, username, password_file and projects. skopeo says: {why}"
            )
        if _MISSING.search(why):
            return NotFound(f"the image {self._shown} does not exist: {why}")
        if _UNREACHABLE.search(why):
            return Unreachable(f"the image {self._shown} cannot be pulled now: {why}")
        return Unavailable(f"the image {self._shown} cannot be pulled: {why}")

    @property
    def _is_unknown(self) -> bool:
        """Whether it is a registry that the settings do not name."""
        return self._registry is None and self._source.startswith("docker://")

    @property
    def _place(self) -> str:
        return self._source.removeprefix("docker://").partition("/")[0]


def not_outside(image: str, registry: str) -> Denied:
    return Denied(
        f"the image {image} is on this machine or its network, where jobs may not look: an operator can allow it by "
        f'[registries.X] host = "{registry}"'
    )


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    """The first bytes; the rest is read and dropped."""
    data = b""
    while piece := await stream.read(1 << 16):
        if len(data) <= most:
            data += piece
    return data[: most + 1]


def _readable(text: str) -> str:
    """The message of the last line, without the parameters of addresses, which may hold tokens."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    found = re.search(r'msg="((?:[^"\\]|\\.)*)"', lines[-1])
    message = found[1].replace('\\"', '"').replace("\\n", " ") if found else lines[-1]
    message = re.sub(r'^Error parsing image name "[^"]*": ', "", message)
    return re.sub(r"\?[^\s\"']*", "?…", message)[:600]
