"""Models whose equilibria take a fixed number of plain steps, with weights computed once: what can
be exported to where there are no solvers."""

from __future__ import annotations

import copy
from typing import NamedTuple

from torch import Tensor, nn

from opteq.gradient import Unrolled
from opteq.layer import Equilibrium, equilibria
from opteq.models.network import Network
from opteq.operators import WeightedOperator, freeze
from opteq.options import whole
from opteq.solve import Solver
from opteq.states import State


class Reached(NamedTuple):
    """A state, and nothing about how it was reached."""

    state: State


class FixedSteps(nn.Module):
    """In the place of an `Equilibrium`: the map applied `steps` times from where solves start, by
    the plain steps of its solver. A layer that is a number of steps keeps that number."""

    def __init__(self, layer: Equilibrium, steps: int) -> None:
        super().__init__()
        own = layer.gradient.steps if isinstance(layer.gradient, Unrolled) else steps
        self.map, self.steps = layer.map, whole("steps", own, least=1)
        self.solver: Solver = layer.solver.plain()

    def forward(self, u: Tensor) -> State:
        bound = self.map.bind(u)
        step = self.solver.unroll(bound)
        assert step is not None
        z = bound.start()
        for k in range(1, self.steps + 1):
            z = step(z, k)[1]
        return z

    def solve(self, u: Tensor, z0: None = None) -> Reached:
        """`forward`, as layers are asked by models."""
        return Reached(self(u))


class Fixed(nn.Module):
    """Images in [0, 1] to logits and probabilities."""

    def __init__(self, model: Network, steps: int) -> None:
        super().__init__()
        self.network = with_fixed_steps(model, steps)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        network = self.network
        logits = network.compute((images - network.pixel_mean) / network.pixel_std).logits
        return logits, logits.softmax(1)


def with_fixed_steps(model: Network, steps: int) -> Network:
    """A copy of a model in evaluation mode: weights as plain numbers, solves as fixed steps."""
    twin = freeze(copy.deepcopy(model).eval())
    for operator in twin.modules():
        if isinstance(operator, WeightedOperator) and isinstance(operator._limit, Tensor):
            operator._limit = float(operator._limit)
            operator.raw = operator.raw.detach()
    layers = {id(layer) for layer in equilibria(twin)}
    for parent in list(twin.modules()):
        for name, child in parent.named_children():
            if id(child) in layers and isinstance(child, Equilibrium):
                parent._modules[name] = FixedSteps(child, steps)
    for value in twin.parameters():
        value.requires_grad_(False)
    return twin
