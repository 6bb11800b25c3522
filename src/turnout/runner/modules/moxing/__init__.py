"""moxing, for programs written for ModelArts: `mox.file` on obs://, s3:// and local paths.

A moxing that the image, the environment or the job's packages have goes before this one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _installed() -> importlib.machinery.ModuleSpec | None:
    """Another moxing that this interpreter can import."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    for finder in sys.meta_path:
        if not hasattr(finder, "find_spec"):
            continue
        where = elsewhere if finder is importlib.machinery.PathFinder else None
        spec = finder.find_spec(__name__, where)
        # A directory without __init__.py is not moxing.
        if spec and spec.loader and spec.has_location and spec.origin != __file__:
            return spec
    return None


_spec = _installed()
if _spec and _spec.loader:
    # `import moxing` returns what is in sys.modules when this file ends.
    sys.modules[__name__] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
else:
    from ._missing import refuse
    from .framework import file

    __version__ = "2.2.8"
    __all__ = ["file"]
    __getattr__ = refuse(__name__)
