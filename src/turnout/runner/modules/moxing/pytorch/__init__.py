"""For `import moxing.pytorch as mox`: it has `mox.file` too."""

from .._missing import refuse
from ..framework import file

__all__ = ["file"]
__getattr__ = refuse(__name__)
