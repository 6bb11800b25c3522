"""Early stopping by Optuna's pruners."""

import bisect
import warnings

import optuna
from optuna.pruners import BasePruner, MedianPruner, WilcoxonPruner
from optuna.trial import TrialState, create_trial

from turnout.job.search import Metric, Search, Stopping
from turnout.search.messages import MetricValue
from turnout.search.suggester import KnownTrial

P_THRESHOLD = 0.1
"""The probability of stopping a trial that is as good as the best one."""
ValuesByStep = dict[int, float]

optuna.logging.set_verbosity(optuna.logging.ERROR)


def should_stop(
    search: Search, number: int, curves: dict[int, list[MetricValue]], trials: dict[int, KnownTrial]
) -> bool:
    rule = search.stopping
    own = _curve(rule, curves.get(number, [])) if rule else {}
    others = {
        n: _curve(rule, curves.get(n, []))
        for n, t in trials.items()
        if rule and n != number and _succeeded(t)
    }
    others = {n: curve for n, curve in others.items() if curve}
    if rule is None or not own or len(others) < rule.startup:
        return False
    if rule.kind == "median":
        own = _best_and_last(own, search.metric)
    study = optuna.create_study(direction="maximize" if search.metric.goal == "max" else "minimize")
    for n, curve in others.items():
        at_own_steps = _carried_forward(curve, own)
        study.add_trial(create_trial(value=trials[n].value, intermediate_values=at_own_steps))
    running = create_trial(state=TrialState.RUNNING, intermediate_values=own)
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


def _curve(rule: Stopping | None, curve: list[MetricValue]) -> ValuesByStep:
    """The values by step, or by the second since the first value."""
    if rule and rule.by == "seconds" and curve:
        begin = min(value.at for value in curve)
        return {(value.at - begin) // 1_000_000_000: value.value for value in curve}
    return {value.step: value.value for value in curve}


def _best_and_last(curve: ValuesByStep, metric: Metric) -> ValuesByStep:
    """The median rule needs only these two steps, and each step takes time."""
    best = (max if metric.goal == "max" else min)(curve, key=curve.__getitem__)
    return {step: curve[step] for step in (best, max(curve))}


def _carried_forward(curve: ValuesByStep, steps: ValuesByStep) -> ValuesByStep:
    """The last value that another trial had reported by each of these steps."""
    known = sorted(curve)
    positions = ((step, bisect.bisect_right(known, step)) for step in steps)
    return {step: curve[known[position - 1]] for step, position in positions if position}
