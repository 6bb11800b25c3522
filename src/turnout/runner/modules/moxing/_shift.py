"""`mox.file.shift('os', 'mox')`: Python's own functions take obs:// and s3:// URLs too."""

from __future__ import annotations

import builtins
import functools
import glob
import io
import os
import shutil
from typing import Any, Callable, Dict, List, Tuple

from ._paths import is_remote
from ._streams import File

_originals: List[Tuple[Any, str, Any]] = []


def shift(from_: str, to: str) -> None:
    """`shift('os', 'mox')` changes them, and `shift('mox', 'os')` puts them back."""
    if (from_, to) == ("os", "mox"):
        if not _originals:
            _replace()
    elif (from_, to) == ("mox", "os"):
        while _originals:
            module, name, original = _originals.pop()
            setattr(module, name, original)
    else:
        raise ValueError(f"shift({from_!r}, {to!r}): use shift('os', 'mox') or shift('mox', 'os')")


def _replace() -> None:
    from .framework.file import file_io as mox

    ours: Dict[Any, Dict[str, Callable[..., Any]]] = {
        builtins: {"open": _open},
        io: {"open": _open},
        glob: {"glob": _glob, "iglob": lambda url, **options: iter(_glob(url, **options))},
        os: {
            "listdir": mox.list_directory,
            "makedirs": lambda url, *_, **__: mox.make_dirs(url),
            "mkdir": lambda url, *_, **__: mox.mk_dir(url),
            "remove": lambda url, **_: mox.remove(url),
            "unlink": lambda url, **_: mox.remove(url),
            "rename": lambda source, target, **_: mox.rename(source, target),
            "replace": lambda source, target, **_: mox.rename(source, target),
            "scandir": mox.scan_dir,
            "stat": lambda url, **_: mox.stat(url),
            "walk": mox.walk,
        },
        os.path: {
            "exists": mox.exists,
            "getsize": mox.get_size,
            "getmtime": lambda url: mox.stat(url).st_mtime,
            "isdir": mox.is_directory,
            "isfile": _is_file,
            "islink": lambda _url: False,
            "lexists": mox.exists,
            "abspath": lambda url: url,
            "realpath": lambda url, **_: url,
        },
        shutil: {
            "copy": lambda source, target, **_: mox.copy(source, target),
            "copy2": lambda source, target, **_: mox.copy(source, target),
            "copyfile": lambda source, target, **_: mox.copy(source, target),
            "copytree": lambda source, target, *_, **__: mox.copy_parallel(source, target),
            "move": lambda source, target, *_, **__: mox.rename(source, target),
            "rmtree": lambda url, *_, **__: mox.remove(url, recursive=True),
        },
    }
    for module, functions in ours.items():
        for name, function in functions.items():
            original = getattr(module, name)
            _originals.append((module, name, original))
            setattr(module, name, _either(original, function))


def _either(original: Any, ours: Callable[..., Any]) -> Any:
    """Ours for URLs, and the original for everything else."""

    def function(*arguments: Any, **options: Any) -> Any:
        paths = arguments[:2] or tuple(options.values())
        return (ours if any(map(is_remote, paths)) else original)(*arguments, **options)

    return functools.update_wrapper(function, original)


def _open(
    name: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, *rest: Any, **options: Any
) -> File:
    options.update(zip(("errors", "newline"), rest))
    options.pop("closefd", None)
    options.pop("opener", None)
    return File(name, mode, encoding, **options)


def _glob(url: str, recursive: bool = False, **_: Any) -> List[str]:
    from .framework.file import file_io as mox

    return mox.glob(url, recursive=recursive)


def _is_file(url: str) -> bool:
    from .framework.file import file_io as mox

    try:
        return not mox.stat(url).is_directory
    except FileNotFoundError:
        return False
