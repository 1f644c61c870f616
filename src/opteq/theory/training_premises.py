"""The premises of OptEq's theorem 6, under which gradient descent finds a global optimum, looked at
one by one. Nothing else here needs them."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import nn

from opteq.equilibrium.chain import Chain
from opteq.equilibrium.unit import Unit
from opteq.operators import LinearOperator
from opteq.operators.base import Shape, dense_matrix
from opteq.penalties.slopes import sampled_slopes
from opteq.theory.claim import Claim
from opteq.theory.layers import layer_bounds

# Singular values of a larger matrix take too long.
_SMALL = 4096


@torch.no_grad()
def training_premises(chain: Chain, state_shape: Shape) -> list[Claim]:
    """The premises of theorem 6 that can be looked at, for a chain with the weights it starts from.
    What cannot: that widths grow like a polynomial of the number of samples, and that the learning
    rate is below constants that the theorem does not give."""
    units = cast(list[Unit], list(chain.units))
    values = [_smallest_singular_value(unit.operator, state_shape) for unit in units]
    contraction = layer_bounds(chain).contraction
    slopes = [sampled_slopes(unit.penalty) for unit in units]
    least, steepest = min(s.least for s in slopes), max(s.largest for s in slopes)
    bends = max(_largest_bend(unit.penalty) for unit in units)
    return [
        Claim(
            "least singular value of the W_l",
            min(values),
            "above 0",
            min(values) > 1e-6,
            "the full rank of each W_l",
        ),
        Claim(
            "fixed points exist and are bounded",
            contraction < 1,
            "the chain contracts, which suffices",
            contraction < 1,
            "section 6.2.1",
        ),
        Claim("least slope of the activation", least, "above 0", least > 1e-6, "monotonicity"),
        Claim("largest slope of the activation", steepest, "at most 1", steepest <= 1 + 1e-6, ""),
        Claim(
            "largest change of its slope, per unit",
            bends,
            "bounded",
            bends < _KINK,
            "Lipschitz smooth; a kink has none",
        ),
    ]


def _smallest_singular_value(operator: LinearOperator, shape: Shape) -> float:
    """Of W on states of this shape; NaN where W is too large to look at."""
    if math.prod(shape) > _SMALL:
        return math.nan
    return float(torch.linalg.svdvals(dense_matrix(operator, shape).double())[-1])


# Slopes at points 1e-4 apart differ by less than this times their distance unless there is a kink.
_KINK, _STEP = 1e3, 1e-4


def _largest_bend(activation: nn.Module) -> float:
    x = torch.arange(-4.0, 4.0, _STEP, dtype=torch.float64)
    slope = activation(x).diff() / _STEP
    return float((slope.diff() / _STEP).abs().max())
