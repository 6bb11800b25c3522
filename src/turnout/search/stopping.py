"""Early stopping by Optuna's pruners."""

import bisect
import warnings

import optuna
from optuna.pruners import BasePruner, MedianPruner, WilcoxonPruner
from optuna.trial import TrialState, create_trial

from turnout.job.search import Metric, Search, Stopping
from turnout.search.messages import Measured
from turnout.search.suggester import KnownTrial

P_THRESHOLD = 0.1
"""The probability of stopping a trial that is as good as the best one."""
Curve = dict[int, float]

optuna.logging.set_verbosity(optuna.logging.ERROR)


def should_stop(
    search: Search, number: int, measured: dict[int, list[Measured]], trials: dict[int, KnownTrial]
) -> bool:
    rule = search.stopping
    mine = _curve(rule, measured.get(number, [])) if rule else {}
    others = {
        n: _curve(rule, measured.get(n, []))
        for n, t in trials.items()
        if rule and n != number and _succeeded(t)
    }
    others = {n: curve for n, curve in others.items() if curve}
    if rule is None or not mine or len(others) < rule.startup:
        return False
    if rule.kind == "median":
        mine = _best_and_last(mine, search.metric)
    study = optuna.create_study(direction="maximize" if search.metric.goal == "max" else "minimize")
    for n, curve in others.items():
        at_my_steps = _carried_forward(curve, mine)
        study.add_trial(create_trial(value=trials[n].value, intermediate_values=at_my_steps))
    running = create_trial(state=TrialState.RUNNING, intermediate_values=mine)
    study.add_trial(running)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bool(_pruner(rule).prune(study, study.get_trials(deepcopy=False)[-1]))


def _pruner(rule: Stopping) -> BasePruner:
    if rule.kind == "median":
        return MedianPruner(n_startup_trials=rule.startup, n_warmup_steps=rule.warmup)
    return WilcoxonPruner(p_threshold=P_THRESHOLD, n_startup_steps=max(2, rule.warmup))


def _succeeded(trial: KnownTrial) -> bool:
    return trial.done and trial.value is not None


def _curve(rule: Stopping | None, measured: list[Measured]) -> Curve:
    if rule and rule.by == "seconds" and measured:
        begin = min(one.at for one in measured)
        return {(one.at - begin) // 1_000_000_000: one.value for one in measured}
    return {one.step: one.value for one in measured}


def _best_and_last(curve: Curve, metric: Metric) -> Curve:
    """The median rule needs only these two steps, and each step takes time."""
    best = (max if metric.goal == "max" else min)(curve, key=curve.__getitem__)
    return {step: curve[step] for step in (best, max(curve))}


def _carried_forward(curve: Curve, steps: Curve) -> Curve:
    """The last value that another trial had reported by each of these steps."""
    known = sorted(curve)
    positions = ((step, bisect.bisect_right(known, step)) for step in steps)
    return {step: curve[known[position - 1]] for step, position in positions if position}
