"""Machine types: `2U4G1P` is two cores, four GiB and one GPU."""

import re
from functools import lru_cache

from turnout.errors import Invalid
from turnout.job import Resources
from turnout.job.resources import GIB

_TYPE = re.compile(r"([0-9]{1,6})U([0-9]{1,6})G([0-9]{1,6})P")


@lru_cache(maxsize=1024)
def parse(text: str, field: str) -> Resources:
    """Empty text is the default machine: no limit of CPU and memory, no GPU."""
    if not text:
        return Resources()
    match = _TYPE.fullmatch(text)
    if match is None:
        raise Invalid(
            f"{field}: {text!r} is not a machine type; it is written <cores>U<GiB>G<GPUs>P, as in 2U4G1P.",
            field=field,
        )
    cpu, memory, gpus = (int(number) for number in match.groups())
    return Resources.of(cores=cpu, memory=memory * GIB, gpus=gpus)
