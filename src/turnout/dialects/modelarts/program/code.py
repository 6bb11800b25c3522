"""Checks the code of a job or an algorithm in its bucket, before the job or algorithm is created."""

import asyncio
import re
from typing import Any, NamedTuple

from turnout.config import Limits
from turnout.dialects.modelarts import errors, locations
from turnout.dialects.modelarts.context import Context
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.errors import Denied, NotFound, TimedOut, TurnoutError
from turnout.service import STORE_SECONDS, Caller, Info

REQUIREMENTS = "pip-requirements.txt"
_MAX_REQUIREMENTS = 64 << 10
_MOXING = re.compile(r"^[ \t]*moxing[ \t]*($|[<>=!~;#])", re.IGNORECASE | re.MULTILINE)
NO_ANSWER = f"the store did not answer within {STORE_SECONDS:g} s"


class CodeInfo(NamedTuple):
    size: int
    tree: dict[str, Any]
    """The folder and its content: `{name, children}`."""
    has_requirements: bool = False


async def check(
    context: Context, caller: Caller, code_dir: str, boot_file: str, field: str
) -> CodeInfo | None:
    """None for code under `file://`. Raises Invalid if there is no code, or more than the limits allow.

    Raises TimedOut if the store does not answer.
    """
    folder = locations.source(code_dir, f"{field}.code_dir", errors.BAD_CODE_DIR)
    if folder.startswith("file:"):
        return None
    url = f"{folder}/"
    files = await _files(context, caller, url, code_dir, f"{field}.code_dir")
    keys = [info.key for info in files]
    prefix = url.partition("://")[2].partition("/")[2]
    names = [key.removeprefix(prefix) for key in keys]
    _check_limits(context.settings.limits, files, names, f"{field}.code_dir")
    if boot_file:
        _check_boot_file(url, names, boot_file, f"{field}.boot_file")
    tree = _tree(folder.rpartition("/")[2], names)
    return CodeInfo(sum(info.size for info in files), tree, REQUIREMENTS in names)


async def requires_moxing(context: Context, caller: Caller, code_dir: str, field: str) -> bool:
    """Whether the requirements of the code have the package moxing of PyPI."""
    path = f"{code_dir.rstrip('/')}/{REQUIREMENTS}"
    content = await read(context, caller, path, field, _MAX_REQUIREMENTS)
    return content is not None and _MOXING.search(content.decode(errors="replace")) is not None


async def read(context: Context, caller: Caller, path: str, field: str, max_bytes: int) -> bytes | None:
    """At most `max_bytes` + 1 bytes of a file in a bucket, or None if it does not exist. Raises Invalid."""
    url = locations.source(path, field)
    if url.startswith("file:"):
        raise invalid(
            errors.BAD_OBS_PATH, field, f": {quoted(path)} must be in a bucket, such as obs://bucket/file."
        )
    try:
        async with asyncio.timeout(STORE_SECONDS):
            opened = await context.objects.read(url, caller.project, range_header=f"bytes=0-{max_bytes}")
            try:
                return b"".join([part async for part in opened.body])
            finally:
                opened.close()
    except TimeoutError:
        raise invalid(
            errors.OBS_UNREADABLE, field, f": {quoted(path)} cannot be read: {NO_ANSWER}."
        ) from None
    except NotFound:
        return None
    except Denied as error:
        raise invalid(errors.OBS_DENIED, field, f": {error.message}.") from None
    except TurnoutError as error:
        raise invalid(
            errors.OBS_UNREADABLE, field, f": {quoted(path)} cannot be read: {error.message}."
        ) from None


async def _files(context: Context, caller: Caller, url: str, code_dir: str, field: str) -> list[Info]:
    """At most one file more than the limit allows."""
    try:
        async with asyncio.timeout(STORE_SECONDS):
            page = await context.objects.list(
                url, caller.project, limit=context.settings.limits.code_files + 1
            )
    except TimeoutError:
        raise TimedOut(NO_ANSWER) from None
    except TimedOut:
        raise
    except NotFound:
        page = None
    except Denied as error:
        raise invalid(errors.OBS_DENIED, field, f": {error.message}.") from None
    except TurnoutError as error:  # a remote store that is unreachable, or refuses access
        raise invalid(
            errors.OBS_UNREADABLE, field, f": {quoted(code_dir)} cannot be listed: {error.message}."
        ) from None
    if page is None or not page.objects:
        raise invalid(
            errors.BAD_CODE_DIR, field, f": there is nothing at {quoted(code_dir)}; upload the code first."
        )
    return [info for info in page.objects if not info.key.endswith("/")]


def _check_limits(limits: Limits, files: list[Info], names: list[str], field: str) -> None:
    if len(files) > limits.code_files:
        raise invalid(
            errors.TOO_MANY_CODE_FILES,
            field,
            f" has more than {limits.code_files} files, which is the limit.",
        )
    depth = max((name.count("/") for name in names), default=0)
    if depth > limits.code_depth:
        raise invalid(
            errors.CODE_TOO_DEEP, field, f" is {depth} directories deep; the limit is {limits.code_depth}."
        )
    size = sum(info.size for info in files)
    if size > limits.code_bytes:
        raise invalid(errors.CODE_TOO_LARGE, field, f" has {size} bytes; the limit is {limits.code_bytes}.")


def _check_boot_file(url: str, names: list[str], boot_file: str, field: str) -> None:
    boot_url = locations.source(boot_file, field, errors.BAD_BOOT_FILE)
    if boot_url.startswith(url) and boot_url.removeprefix(url) not in names:
        raise invalid(errors.BAD_BOOT_FILE, field, f": there is no file {quoted(boot_file)}.")


def _tree(name: str, names: list[str]) -> dict[str, Any]:
    root: dict[str, Any] = {"name": f"{name}/", "children": []}
    folders: dict[str, dict[str, Any]] = {"": root}
    for path in names:
        above, _, last = path.rpartition("/")
        _folder(folders, above)["children"].append({"name": last, "children": None})
    return root


def _folder(folders: dict[str, dict[str, Any]], path: str) -> dict[str, Any]:
    if path not in folders:
        above, _, last = path.rpartition("/")
        folders[path] = {"name": f"{last}/", "children": []}
        _folder(folders, above)["children"].append(folders[path])
    return folders[path]
