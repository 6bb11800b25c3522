"""The module `autosearch` for the programs of trials. It runs with their Python, so it needs the standard library only.

`config` has the values of this trial, and `reporter(accuracy=0.9)` reports metrics. With a file as argument, the module
runs the file, and then the file's `train()` if the program has reported nothing by then.
"""

import json
import os
import sys
import types

__all__ = ["config", "reporter"]

config = json.loads(os.environ.get("TURNOUT_TRIAL", "{}"))

_steps: "list[int]" = []


def reporter(step: "int | None" = None, **metrics: float) -> None:
    """Reports metrics, which are numbers. Without `step`, each report counts as one more step."""
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
