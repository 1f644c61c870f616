"""A network that lays wires over an image and reads the currents: for what reaches far."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import OptionError
from opteq.gradient import GradientRule, Implicit
from opteq.kernels import Conductance
from opteq.kernels.conductance import BoundConductance
from opteq.layer import Equilibrium
from opteq.models.network import Network, Output
from opteq.options import one_of
from opteq.penalties import Free
from opteq.problem import Problem
from opteq.solve import ConjugateGradients, Solver

# Where the leak starts: so small that currents reach far from the beginning.
_LEAK = -12.0


class Wires(Network):
    """The picture sets the wires, the marks set the currents.

    Two convolutions give each pixel a conductivity, and a wire is half of each of its two ends, in
    series. A unit current flows between every two channels of the image, in where the one is bright
    and out where the other is. Which of these currents count is learned, and so is the leak, one
    number. What flows through a pixel gives its class.

    The equilibrium is solved in float64: what reaches across hundreds of wires is a small
    difference.
    """

    def __init__(
        self,
        channels: int,
        in_channels: int,
        classes: int,
        layer: Equilibrium,
    ) -> None:
        super().__init__()
        self.features = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.conductivity = nn.Conv2d(channels, 1, 1)
        self.leak = nn.Parameter(torch.tensor(_LEAK))
        self.layer = layer
        self.pairs = tuple(combinations(range(in_channels), 2))
        self.choice = nn.Parameter(torch.zeros(len(self.pairs)))
        self.read = nn.Conv2d(1, classes, 1)

    def compute(self, x: Tensor) -> Output:
        # Marks of a pixel or two would be far from 0 on the scale of their deviation.
        x = x * self.pixel_std + self.pixel_mean
        conductivity = self.conductivity(torch.relu(self.features(x))).double()
        source = self._sources(x)
        across = _in_series(conductivity[..., :-1], conductivity[..., 1:])
        down = _in_series(conductivity[..., :-1, :], conductivity[..., 1:, :])
        wires = [functional.pad(across, (0, 1)), functional.pad(down, (0, 0, 0, 1))]
        leak = self.leak.double().expand_as(conductivity)
        solution = self.layer.solve(torch.cat([source, *wires, leak], 1))
        current = self._currents(solution.map, solution.state)
        return Output(self.read(current.log().to(x.dtype)), [solution])

    def _sources(self, images: Tensor) -> Tensor:
        """What flows in at each pixel, for every two channels of images in [0, 1]."""
        bright = images.double().clamp(min=0)
        share = bright / bright.sum((2, 3), keepdim=True).clamp(min=1e-12)
        return torch.stack([share[:, a] - share[:, b] for a, b in self.pairs], 1)

    def _currents(self, map: object, z: object) -> Tensor:
        """What flows through each pixel, relative to the largest, and never quite 0."""
        bound = map.problem.similarity  # type: ignore[attr-defined]
        assert isinstance(bound, BoundConductance)
        assert isinstance(z, Tensor)
        right, down = (part.abs() for part in bound.currents(z))
        through = functional.pad(right, (0, 1)) + functional.pad(right, (1, 0))
        through = through + functional.pad(down, (0, 0, 0, 1)) + functional.pad(down, (0, 0, 1, 0))
        largest = through.amax((2, 3), keepdim=True).clamp(min=1e-12)
        chosen = self.choice.softmax(0).to(through)[:, None, None]
        return (chosen * through / largest).sum(1, keepdim=True) + 1e-4


def _in_series(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of the harmonic mean."""
    return math.log(2) - torch.logaddexp(-a, -b)


def wires(
    *,
    channels: int = 16,
    in_channels: int = 3,
    classes: int = 2,
    task: Literal["segmentation"] = "segmentation",
    leak: float = 1e-9,
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> Wires:
    """Classes for each pixel from the currents in a network of wires that two convolutions lay."""
    one_of("task", task, ("segmentation",))
    gradient = Implicit(tol=1e-6, max_steps=2000) if gradient is None else gradient
    solver = gradient.solver_or(solver, ConjugateGradients(tol=1e-6, max_steps=4000))
    pairs = in_channels * (in_channels - 1) // 2
    if not pairs:
        raise OptionError("One channel has no other to send a current to.", "Give two or more.")
    problem = Problem(penalty=Free(), similarity=Conductance(pairs, leak=leak))
    layer = Equilibrium(problem, solver=solver, gradient=gradient, allow_uncertified=True)
    return Wires(channels, in_channels, classes, layer)
