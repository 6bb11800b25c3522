"""Looks at the code of a job or an algorithm where it lies, before anything is made of it."""

from typing import Any, NamedTuple

from turnout.config import Limits
from turnout.dialects.modelarts import faults, places
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.dialects.modelarts.house import House
from turnout.errors import Denied, NotFound, TurnoutError
from turnout.service import Caller, Info

TOO_MANY = 2759
TOO_DEEP = 2760
TOO_LARGE = 2761
NO_PERMISSION = 2771
UNREADABLE = 2773


class Code(NamedTuple):
    size: int
    tree: dict[str, Any]
    """The folder with all that is in it: `{name, children}`."""


async def look(house: House, caller: Caller, code_dir: str, boot_file: str, field: str) -> Code | None:
    """None for code that lies in no bucket. Raises Invalid if it is not there, or more than is allowed."""
    folder = places.source(code_dir, f"{field}.code_dir", faults.BAD_CODE_DIR)
    if folder.startswith("file:"):
        return None
    url = f"{folder}/"
    files = await _files(house, caller, url, code_dir, f"{field}.code_dir")
    keys = [info.key for info in files]
    prefix = url.partition("://")[2].partition("/")[2]
    names = [key.removeprefix(prefix) for key in keys]
    _check(house.settings.limits, files, names, f"{field}.code_dir")
    if boot_file:
        _check_boot_file(url, names, boot_file, f"{field}.boot_file")
    return Code(sum(info.size for info in files), _tree(folder.rpartition("/")[2], names))


async def read(house: House, caller: Caller, path: str, field: str, most: int) -> bytes:
    """A small file in a bucket, up to a byte more than `most`. Raises Invalid if it cannot be had."""
    url = places.source(path, field)
    if url.startswith("file:"):
        raise wrong(
            faults.BAD_OBS_PATH, field, f": {shown(path)} must be in a bucket, such as obs://bucket/file."
        )
    try:
        opened = await house.objects.read(url, caller.project, asked=f"bytes=0-{most}")
        try:
            return b"".join([part async for part in opened.body])
        finally:
            opened.close()
    except NotFound:
        raise wrong(faults.BAD_OBS_PATH, field, f": there is nothing at {shown(path)}.") from None
    except Denied as error:
        raise wrong(NO_PERMISSION, field, f": {error.message}.") from None
    except TurnoutError as error:
        raise wrong(UNREADABLE, field, f": {shown(path)} cannot be read: {error.message}.") from None


async def _files(house: House, caller: Caller, url: str, said: str, field: str) -> list[Info]:
    """One more than is allowed at the most."""
    try:
        page = await house.objects.list(url, caller.project, limit=house.settings.limits.code_files + 1)
    except NotFound:
        page = None
    except Denied as error:
        raise wrong(NO_PERMISSION, field, f": {error.message}.") from None
    except TurnoutError as error:  # a store elsewhere that cannot be reached, or does not let us in
        raise wrong(UNREADABLE, field, f": {shown(said)} cannot be looked at: {error.message}.") from None
    if page is None or not page.objects:
        raise wrong(
            faults.BAD_CODE_DIR, field, f": there is nothing at {shown(said)}; upload the code first."
        )
    return [info for info in page.objects if not info.key.endswith("/")]


def _check(limits: Limits, files: list[Info], names: list[str], field: str) -> None:
    if len(files) > limits.code_files:
        raise wrong(
            TOO_MANY, field, f" has more than {limits.code_files} files, which is the most there may be."
        )
    depth = max((name.count("/") for name in names), default=0)
    if depth > limits.code_depth:
        raise wrong(TOO_DEEP, field, f" is {depth} directories deep; {limits.code_depth} are allowed.")
    size = sum(info.size for info in files)
    if size > limits.code_bytes:
        raise wrong(TOO_LARGE, field, f" has {size} bytes; {limits.code_bytes} are allowed.")


def _check_boot_file(url: str, names: list[str], boot_file: str, field: str) -> None:
    place = places.source(boot_file, field, faults.BAD_BOOT_FILE)
    if place.startswith(url) and place.removeprefix(url) not in names:
        raise wrong(faults.BAD_BOOT_FILE, field, f": there is no file {shown(boot_file)}.")


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
