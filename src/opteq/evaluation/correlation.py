"""Channel correlations between neighbouring branches [MOptEq section 3.2, figure 2]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.errors import OptionError
from opteq.models.bodies import to_side as at_side
from opteq.models.network import Network


@dataclass(frozen=True)
class Correlations:
    """Correlations over a batch, as cosines, so that models can be compared; the paper's scores are
    inner products, which grow with the features."""

    matrix: Tensor
    """(channels, channels): mean absolute cosine between the channels of branches 2 and 1."""
    heritage: Tensor
    """(batch,): mean cosine of corresponding channels of neighbours."""
    diversity: Tensor
    """(batch,): mean absolute cosine of different channels of neighbours; lower is more diverse."""

    @property
    def contrast(self) -> float:
        """How far the diagonal of the matrix stands out: its mean divided by that of the rest."""
        count = len(self.matrix)
        diagonal = self.matrix.diagonal().mean()
        rest = (self.matrix.sum() - self.matrix.diagonal().sum()) / (count * (count - 1))
        return float(diagonal / rest.clamp(min=1e-12))


@torch.no_grad()
def correlations(model: Network, x: Tensor) -> Correlations:
    """Correlations of a model's branches, neighbours in a loop, with equally many channels."""
    states = [part for solution in model.run(x).solutions for part in _parts(solution.state)]
    if len(states) < 2:
        raise OptionError("The model has only one branch.", "Give one with two or more.")
    pairs = [(states[i], states[(i + 1) % len(states)]) for i in range(len(states))]
    cosines = [_cosines(a, b) for a, b in pairs]
    equal = torch.stack([c.diagonal(dim1=1, dim2=2).mean(1) for c in cosines]).mean(0)
    count = cosines[0].shape[1]
    different = torch.stack(
        [
            (c.abs().sum((1, 2)) - c.diagonal(dim1=1, dim2=2).abs().sum(1)) / (count * (count - 1))
            for c in cosines
        ]
    ).mean(0)
    return Correlations(_cosines(states[1], states[0]).abs().mean(0), equal, different)


def _parts(state: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else state


def _cosines(a: Tensor, b: Tensor) -> Tensor:
    """(batch, channels of a, channels of b), at the smaller of the two scales."""
    if a.shape[1] != b.shape[1]:
        raise OptionError("Branches differ in channels.", "Give them equally many.")
    side = min(a.shape[-1], b.shape[-1])
    left, right = (_unit(at_side(z, side).flatten(2)) for z in (a, b))
    return left @ right.mT


def _unit(rows: Tensor) -> Tensor:
    return rows / torch.linalg.vector_norm(rows, dim=2, keepdim=True).clamp(min=1e-12)
