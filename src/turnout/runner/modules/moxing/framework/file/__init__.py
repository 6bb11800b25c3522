"""`mox.file`."""

from ..._errors import (
    MoxFileNameDuplicateException,
    MoxFileNotExistsException,
    MoxFileReadException,
    MoxFileRespException,
)
from ..._settings import set_auth
from ..._shift import shift
from ..._streams import File
from . import file_io
from .file_io import (
    append,
    append_remote,
    background_sync_copy,
    copy,
    copy_parallel,
    exists,
    get_size,
    glob,
    is_directory,
    list_directory,
    make_dirs,
    mk_dir,
    mkdir,
    read,
    remove,
    rename,
    scan_dir,
    stat,
    walk,
    write,
)

__all__ = [
    "File",
    "MoxFileNameDuplicateException",
    "MoxFileNotExistsException",
    "MoxFileReadException",
    "MoxFileRespException",
    "append",
    "append_remote",
    "background_sync_copy",
    "copy",
    "copy_parallel",
    "exists",
    "file_io",
    "get_size",
    "glob",
    "is_directory",
    "list_directory",
    "make_dirs",
    "mk_dir",
    "mkdir",
    "read",
    "remove",
    "rename",
    "scan_dir",
    "set_auth",
    "shift",
    "stat",
    "walk",
    "write",
]
