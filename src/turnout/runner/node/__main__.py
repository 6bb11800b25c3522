"""`python3 runner.pyz <endpoint> <cluster>/<attempt>/<replica>`"""

from __future__ import annotations

import os
import sys

from . import kernel, settings
from .connection import Gateway
from .diagnostics import say
from .errors import Unusable
from .home import Home
from .runner import GAVE_UP, Runner


def main() -> int:
    kernel.hide()
    try:
        found = settings.read(sys.argv[1:])
        home = Home(found.home) if found.home else Home.make(found.scratch, found.attempt, found.replica)
        return Runner(found, Gateway(found, os.urandom(16).hex()), home).run()
    except Unusable as error:
        say(str(error))
    except OSError as error:
        say(f"it cannot work in its scratch directory: {error}")
    return GAVE_UP


def run() -> None:
    code = main()
    sys.stderr.flush()
    # Not sys.exit: it would wait for threads that wait for the service.
    os._exit(code)


if __name__ == "__main__":
    run()
