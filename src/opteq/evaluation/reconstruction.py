"""The perturbation that an equilibrium itself suggests, against noise of the same size
[MOptEq section 3.2, figure 3a]."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from opteq.equilibrium.branches import BoundBranches
from opteq.errors import OptionError
from opteq.models.network import Classifier, is_right

RECONSTRUCTED, UNIFORM, BINOMIAL = "reconstructed", "uniform noise", "binomial noise"


@torch.no_grad()
def under_reconstruction(
    model: Classifier, x: Tensor, labels: Tensor, sizes: Sequence[float], *, trials: int = 5
) -> dict[str, list[float]]:
    """Accuracy with the features g(x) moved by each size: against sign(U'y) of the first branch at
    its equilibrium, by uniform noise, and by random signs (means over `trials`)."""
    features = model.stem((x - model.pixel_mean) / model.pixel_std)
    ((layer, injection),) = model.body.parts(features)
    solution = layer.solve(injection)
    bound = solution.map
    if not isinstance(bound, BoundBranches):
        raise OptionError("The model has no MOptEq branches.", "Give an MOptEq model.")
    direction = bound.reconstructed_perturbation(solution.state, 1.0)[0]

    def accuracy(moved: Tensor) -> float:
        fused, _ = model.body(moved)
        return float(is_right(model.read_out(fused), labels).double().mean())

    def noisy(draw: Callable[[], Tensor], size: float) -> float:
        return sum(accuracy(features + size * draw()) for _ in range(trials)) / trials

    found: dict[str, list[float]] = {RECONSTRUCTED: [], UNIFORM: [], BINOMIAL: []}
    for size in sizes:
        found[RECONSTRUCTED].append(accuracy(features - size * direction))
        found[UNIFORM].append(noisy(lambda: torch.rand_like(features) * 2 - 1, size))
        found[BINOMIAL].append(noisy(lambda: torch.randint_like(features, 2) * 2 - 1, size))
    return found
