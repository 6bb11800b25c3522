"""What `turnout serve` prints when it has started and when it stops."""

import shlex
import sys
from pathlib import Path

from turnout import __version__
from turnout.config import Settings
from turnout.paths import Paths


def started(settings: Settings, port: int, paths: Paths, root_key: str) -> str:
    """`root_key`: the key to show. If it is empty, the text names its file instead: output often ends up in a log."""
    endpoint = settings.endpoint(settings.server.host, port)
    key, variable = _root_key(settings, paths, root_key)
    tictl = Path(sys.argv[0]).with_name("tictl")
    return f"""\
Turnout {__version__} listens on {endpoint}
  root key   {key}
  data       {paths.data}{_further_ports(settings)}

Submit a first job, from another terminal:
  export TURNOUT_ENDPOINT={endpoint}{variable}
  {tictl} job create hello --command "echo hello, world" --wait
  {tictl} logs hello
"""


def stopped(running: int) -> str:
    """`running`: the number of jobs that still run."""
    if not running:
        return ""
    over = "\r" if sys.stdout.isatty() else ""  # overwrites the ^C that a terminal shows there
    if running == 1:
        return f"{over}1 job keeps running; turnout serve picks it up again\n"
    return f"{over}{running} jobs keep running; turnout serve picks them up again\n"


def _root_key(settings: Settings, paths: Paths, root_key: str) -> tuple[str, str]:
    """A description of the root key, and the text that exports it."""
    if settings.no_auth:
        return "not needed (--no-auth)", ""
    if settings.root_key:
        return "the one in TURNOUT_ROOT_KEY", ' TURNOUT_KEY="$TURNOUT_ROOT_KEY"'
    if root_key:
        once = f"{root_key}\n             shown this once; it is kept in {paths.root_key}"
        return once, f" TURNOUT_KEY={root_key}"
    return f"in {paths.root_key}", f' TURNOUT_KEY="$(cat {shlex.quote(str(paths.root_key))})"'


def _further_ports(settings: Settings) -> str:
    lines, host = "", settings.server.host
    if settings.storage.s3.port:
        lines += f"\n  S3         {settings.endpoint(host, settings.storage.s3.port)}"
    if settings.grpc.port:
        lines += f"\n  gRPC       {settings.endpoint(host, settings.grpc.port).partition('//')[2]}"
    return lines
