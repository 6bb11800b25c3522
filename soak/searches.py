"""Searches whose trials record their runs, and the check of a search."""

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.dialects.vertex.driving import Cloud as Google
from tests.running import Service

TRIALS = 6
PROGRAM = (
    'OUT="/gcs/{bucket}/$CLOUD_ML_TRIAL_ID"; mkdir -p "$OUT"; echo run >> "$OUT/runs"; x=${{1#--x=}}; '
    'echo begin; sleep 0.3; echo "TURNOUT_METRIC score=$x"; '
    'echo "$x" > "$OUT/result.new" && mv "$OUT/result.new" "$OUT/result"; echo end'
)


@dataclass
class Search:
    name: str
    id: str = ""
    sent: float = field(default_factory=time.monotonic)
    ended: float = math.inf
    """When it was first seen to have ended."""

    @property
    def bucket(self) -> str:
        return f"soak-{self.name}"

    def create(self, service: Service) -> None:
        answer = Google(service, "default").send("POST", "hyperparameterTuningJobs", self._document())
        self.id = str(answer.body["name"]).rpartition("/")[2]

    def _document(self) -> dict[str, Any]:
        container = {
            "imageUri": "python:3",
            "command": ["/bin/sh", "-c", PROGRAM.format(bucket=self.bucket), "trial"],
        }
        pool = {
            "machineSpec": {"machineType": "n1-standard-4"},
            "replicaCount": 1,
            "containerSpec": container,
        }
        return {
            "displayName": self.name,
            "maxTrialCount": TRIALS,
            "parallelTrialCount": 2,
            "studySpec": {
                "metrics": [{"metricId": "score", "goal": "MAXIMIZE"}],
                "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}],
            },
            "trialJobSpec": {"workerPoolSpecs": [pool]},
        }


def said(x: str) -> list[str]:
    """What a trial prints."""
    return ["begin", f"TURNOUT_METRIC score={x}", "end"]


def check_search(state: str, message: str, trials: list[Any], exact: bool) -> str:
    """What is wrong with the search, or "". `exact`: the disk was never full while it ran."""
    numbers = Counter(one["number"] for one in trials)
    if twice := [number for number, count in numbers.items() if count > 1]:
        return f"trials {twice} exist twice"
    if len(trials) > TRIALS:
        return f"it has {len(trials)} trials, not {TRIALS}"
    if not exact:
        return ""
    if state != "succeeded":
        return f"it is {state}: {message}"
    if sorted(numbers) != list(range(1, TRIALS + 1)):
        return f"its trials are {sorted(numbers)}"
    return ""
