import contextlib
import gc
import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def files_are_closed() -> Iterator[None]:
    """A supervisor keeps its files open until its process ends, but here it runs in the process of the tests."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    gc.collect()  # objects close the files that they own
    for fd in set(os.listdir("/proc/self/fd")) - before:
        with contextlib.suppress(OSError):  # one of them was open for the listing
            os.close(int(fd))
