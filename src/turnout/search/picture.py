"""Plots of a search as PNG: the metric along a parameter, or the importance of all parameters."""

import io
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.ensemble import RandomForestRegressor

from turnout.errors import Invalid
from turnout.job.search import Search
from turnout.search.axes import Axis, Space
from turnout.search.importance import SEED, coordinate, coordinates, importance, position
from turnout.search.suggester import KnownTrial

TREES = 64
STEPS = 60
BACKGROUND = 200
BLUE, GREY, RED = "#2563a8", "#8a8f98", "#c0392b"


def picture(search: Search, space: Space, trials: Sequence[KnownTrial], name: str) -> bytes:
    """The metric along one parameter; without a name, the importance of all."""
    done = [trial for trial in trials if trial.value is not None]
    figure = Figure(figsize=(6.4, 4.2), dpi=110, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    if not name:
        _draw_importance(axes, space, done)
    else:
        axis = next((axis for axis in space.axes if axis.name == name), None)
        if axis is None:
            names = ", ".join(axis.name for axis in space.axes)
            raise Invalid(f"{name} is not a parameter that varies; these are: {names}", field=name)
        _draw_parameter(axes, search, space, done, axis)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _draw_importance(axes: Axes, space: Space, done: Sequence[KnownTrial]) -> None:
    weights = importance(space, done)[::-1]
    axes.set_title(f"Importance, {len(done)} trials", loc="left")
    if not weights:
        _write(axes, "Too few trials with different results")
        return
    names = [textwrap.shorten(weight.name, 32) for weight in weights]
    means, stds = [weight.mean for weight in weights], [weight.std for weight in weights]
    axes.barh(names, means, color=BLUE, height=0.6)
    # A share lies between 0 and 1, whatever the trees' spread.
    low = [min(mean, std) for mean, std in zip(means, stds, strict=True)]
    high = [min(1 - mean, std) for mean, std in zip(means, stds, strict=True)]
    axes.errorbar(means, names, xerr=[low, high], fmt="none", ecolor=GREY, capsize=3)
    axes.set_xlim(0, min(1, 1.1 * max(mean + std for mean, std in zip(means, stds, strict=True))))
    axes.set_xlabel("share of the variance explained (fANOVA; mean ± std over trees)")


def _draw_parameter(axes: Axes, search: Search, space: Space, done: Sequence[KnownTrial], axis: Axis) -> None:
    metric = search.metric
    axes.set_title(f"{metric.name} by {axis.name}, {len(done)} trials", loc="left")
    axes.set_xlabel(axis.name)
    axes.set_ylabel(f"{metric.name} (to be {'maximised' if metric.goal == 'max' else 'minimised'})")
    with_parameter = [trial for trial in done if axis.name in trial.point]
    if not with_parameter:
        _write(axes, "No trial with this parameter has finished")
        return
    if len(done) > 1:
        where, mean, std = _marginal(space, done, axis)
        at = [_plotted(axis, position(axis, x)) for x in where]
        if axis.form == "choice":
            axes.errorbar(
                at, mean, yerr=std, fmt="_", color=BLUE, markersize=24, capsize=4, label="forest, mean ± std"
            )
        else:
            axes.plot(at, mean, color=BLUE, label="forest, mean ± std")
            axes.fill_between(at, mean - std, mean + std, color=BLUE, alpha=0.18, linewidth=0)
    best = (max if metric.goal == "max" else min)(with_parameter, key=lambda trial: trial.value or 0)
    axes.scatter(
        [_plotted_value(axis, t) for t in with_parameter],
        [t.value or 0 for t in with_parameter],
        s=16,
        color=GREY,
        label="trials",
    )
    axes.scatter([_plotted_value(axis, best)], [best.value or 0], s=40, color=RED, label="best", zorder=3)
    if axis.values:
        axes.set_xticks(
            range(len(axis.values)),
            [f"{value:.4g}" if isinstance(value, float) else str(value) for value in axis.values],
        )
    elif axis.log and not axis.mirrored:
        axes.set_xscale("log")
    axes.legend(frameon=False, fontsize="small")


def _marginal(
    space: Space, done: Sequence[KnownTrial], axis: Axis
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The forest's mean prediction along one axis, over points drawn uniformly from the others."""
    names = [axis.name for axis in space.axes]
    known = np.array([[coordinates(space, trial)[name] for name in names] for trial in done])
    forest = RandomForestRegressor(TREES, random_state=SEED, min_samples_leaf=2 if len(done) > 10 else 1)
    forest.fit(_encoded(space, known), np.array([trial.value for trial in done]))
    ends = np.array([(coordinate(axis, axis.low), coordinate(axis, axis.high)) for axis in space.axes])
    low, high = ends[names.index(axis.name)]
    where = np.linspace(low, high, STEPS) if not axis.values else np.arange(len(axis.values))
    points = np.random.default_rng(SEED).uniform(ends[:, 0], ends[:, 1], (BACKGROUND, len(names)))
    for column, other in enumerate(space.axes):
        if other.values:
            points[:, column] = np.round(points[:, column])
    everywhere = np.repeat(points[None], len(where), axis=0)
    everywhere[:, :, names.index(axis.name)] = where[:, None]
    rows = _encoded(space, everywhere.reshape(-1, len(names)))
    predictions = np.array(
        [tree.predict(rows).reshape(len(where), -1).mean(axis=1) for tree in forest.estimators_]
    )
    return where, predictions.mean(axis=0), predictions.std(axis=0)


def _encoded(space: Space, rows: np.ndarray) -> np.ndarray:
    """One-hot columns for choices, which have no order."""
    columns: list[np.ndarray] = []
    for number, axis in enumerate(space.axes):
        column = rows[:, number]
        if axis.form == "choice":
            columns += [(column == index).astype(float) for index in range(len(axis.values))]
        else:
            columns.append(column)
    return np.stack(columns, axis=1)


def _plotted_value(axis: Axis, trial: KnownTrial) -> float:
    return _plotted(axis, axis.position(trial.point[axis.name]))


def _plotted(axis: Axis, position: float) -> float:
    return position if axis.values else float(axis.value(position))


def _write(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=GREY)
