"""Maps parameter values to numeric positions on an axis, which the libraries search, and back."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from turnout.job.search import Parameter, Point, Value, bounds, levels, only_active, size


class Axis(msgspec.Struct, frozen=True):
    """`real` and `whole` positions lie between low and high; `level` and `choice` count the values from 0."""

    name: str
    form: Literal["real", "whole", "level", "choice"]
    low: float
    high: float
    log: bool = False
    mirrored: bool = False
    """The value is low + high - position: a log scale with more resolution at the high end."""
    values: tuple[Value, ...] = ()

    def value(self, position: float) -> Value:
        if self.values:
            return self.values[round(min(max(position, self.low), self.high))]
        inside = min(max(float(position), self.low), self.high)
        if self.mirrored:
            inside = min(max(self.low + self.high - inside, self.low), self.high)
        return round(inside) if self.form == "whole" else inside

    def position(self, value: Value) -> float:
        if self.values:
            return self.values.index(value)
        return self.low + self.high - float(value) if self.mirrored else float(value)

    @property
    def inactive_position(self) -> float:
        """The position of an inactive parameter, for libraries that need one."""
        return self.low if self.values else (self.low + self.high) / 2


class Space:
    """The axes of a search, without parameters that have only one value."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._parameters = parameters
        self._fixed: Point = {p.name: _only_value(p) for p in parameters if size(p) == 1}
        self.axes = [_axis(parameter) for parameter in parameters if size(parameter) > 1]
        self.conditional = any(parameter.condition for parameter in parameters)

    def point(self, positions: dict[str, float]) -> Point:
        """The values at these positions, without inactive parameters."""
        free = {axis.name: axis.value(positions[axis.name]) for axis in self.axes}
        return self.complete(free)

    def complete(self, free: Point) -> Point:
        both = self._fixed | free
        in_order = {parameter.name: both[parameter.name] for parameter in self._parameters}
        return only_active(self._parameters, in_order)

    def positions(self, point: Point) -> dict[str, float]:
        """The positions of the active parameters."""
        return {axis.name: axis.position(point[axis.name]) for axis in self.axes if axis.name in point}

    def active(self, name: str, so_far: Point) -> bool:
        """Whether the condition of a parameter holds, given the values of the parameters before it."""
        condition = next(parameter.condition for parameter in self._parameters if parameter.name == name)
        return condition is None or (self._fixed | so_far).get(condition.parent) in condition.values


def _axis(parameter: Parameter) -> Axis:
    if parameter.values or parameter.points:
        values = levels(parameter) or ()
        form = "choice" if parameter.kind == "categorical" else "level"
        return Axis(parameter.name, form, 0, len(values) - 1, values=values)
    low, high = map(float, bounds(parameter))
    form = "whole" if parameter.kind == "integer" else "real"
    mirrored = parameter.scale == "reverse_log"
    return Axis(parameter.name, form, low, high, log=parameter.scale != "linear", mirrored=mirrored)


def _only_value(parameter: Parameter) -> Value:
    if parameter.values:
        return parameter.values[0]
    low, _ = bounds(parameter)
    return int(low) if parameter.kind == "integer" else float(low)
