"""Given to the programs of trials as the module `autosearch`, whatever their Python: nothing of ours is imported.

`config` has the values that this trial tries, `reporter(accuracy=0.9)` tells how it does. Run with a file, it runs that
file, and then its `train()` if nothing has been told until then.
"""

import json
import os
import sys
import types

__all__ = ["config", "reporter"]

config = json.loads(os.environ.get("TURNOUT_TRIAL", "{}"))

_steps: "list[int]" = []


def reporter(step: "int | None" = None, **metrics: float) -> None:
    """Tell of metrics, which are numbers. Each report is one more step, unless it says which one it is."""
    _steps.append(len(_steps) + 1 if step is None else int(step))
    lines = []
    for name, value in sorted(metrics.items()):
        try:
            lines.append("TURNOUT_METRIC %s=%r step=%d\n" % (name, float(value), _steps[-1]))  # noqa: UP031
        except (TypeError, ValueError):
            continue
    sys.stdout.flush()
    sys.stdout.write("".join(lines))
    sys.stdout.flush()


def _run(path: str) -> None:
    program = types.ModuleType("__main__")
    program.__file__ = path
    sys.modules["autosearch"], sys.modules["__main__"] = sys.modules["__main__"], program
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec"), program.__dict__)
    train = getattr(program, "train", None)
    if not _steps and callable(train):
        train()


if __name__ == "__main__":
    del sys.argv[0]
    _run(sys.argv[0])
