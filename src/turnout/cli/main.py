"""The start of `turnout`."""

import sys
from functools import partial
from typing import NoReturn

from turnout.cli import entry, serve


def main() -> NoReturn:
    # The service would keep the other commands in memory, and wait for them to be imported.
    options = serve.plain_options(sys.argv[1:])
    if options:
        entry.run(partial(serve.serve, options), "turnout")

    from turnout.cli import command_line, turnout

    command_line.run(turnout.app, "turnout")


if __name__ == "__main__":
    main()
