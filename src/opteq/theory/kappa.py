"""Proposition 4 and remark 3 of the GEQ paper at a trained layer, beside a Monte Carlo estimate."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.equilibrium.chain import BoundChain, Chain
from opteq.layer import Equilibrium
from opteq.models.bounded import Bounded
from opteq.operators import Conv2d
from opteq.operators.base import dense_matrix
from opteq.states import as_tuple
from opteq.theory.propositions import Bound, far_enough
from opteq.theory.stretch import precise
from opteq.theory.subjects import Subject, length

# A matrix of so many rows is decomposed in seconds.
_SMALL = 2100
_KERNEL = 3


def similarity_bounds(subject: Subject, draws: int) -> list[Bound]:
    """Proposition 4 for each image and the next one, worst pair, and remark 3. A convolution's rows
    see patches of the features, so the bound is the mean over places."""
    weight = convolution_of(subject.injection)
    assert weight is not None
    variance, rows = float(weight.double().square().mean()), weight.shape[0]
    g = subject.features[:8].double()
    patches = functional.unfold(g, _KERNEL, padding=_KERNEL // 2)
    a, b = patches[:-1], patches[1:]
    lengths = (a.norm(dim=1) * b.norm(dim=1)).clamp(min=1e-300)
    angle = ((a * b).sum(1) / lengths).clamp(-1, 1).acos()
    arc = angle.sin() + (math.pi - angle) * angle.cos()
    base = (variance * lengths * arc / (2 * math.pi)).mean(1)
    mu, layer = subject.norm, precise(subject.layer, tol=1e-6)
    measured, outputs, beta = torch.zeros(len(base), dtype=torch.float64), 0.0, 0.0
    generator = torch.Generator().manual_seed(0)
    for _ in range(draws):
        U = torch.randn(weight.shape, generator=generator, dtype=torch.float64) * variance**0.5
        z, largest_gate = _outputs(layer, functional.conv2d(g, U, padding=_KERNEL // 2))
        flat = z.flatten(1)
        measured += (flat[:-1] * flat[1:]).sum(1) / (rows * patches.shape[-1] * draws)
        outputs, beta = max(outputs, length(z)), max(beta, largest_gate)
    worst = int((measured / base).argmax())
    if subject.gamma is None:
        value = float(base[worst]) / (1 - mu**2) ** 2 if mu < 1 else math.inf
        bound = Bound("proposition 4, OptEq", value, "mu < 1; Gaussian U", mu < 1)
        return [replace(bound, measured=float(measured[worst]))]
    smallest, known = _smallest_singular_value(subject)
    apart = (g[1:] - g[:-1]).flatten(1).norm(dim=1)
    exponent = subject.gamma * (outputs * mu) ** 2
    exponent -= subject.gamma / 4 * (smallest * float(apart[worst])) ** 2
    rest = 1 - beta * mu**2
    value = math.inf
    if rest > 0 and exponent < 700:
        value = mu**2 * math.exp(exponent) * float(base[worst]) / rest**2
    distance = math.inf
    if smallest > 0:
        distance = far_enough(gamma=subject.gamma, mu=mu, outputs=outputs, smallest=smallest)
    words = f"smallest singular value of U: {smallest:.3g}" if known else "U too large to look at"
    return [
        Bound(
            "proposition 4, GEQ",
            value,
            "beta mu^2 < 1; Gaussian U",
            rest > 0,
            float(measured[worst]),
        ),
        Bound(
            "remark 3, distance from which GEQ's is less",
            distance,
            words,
            distance <= float(apart.max()),
            float(apart.max()),
        ),
    ]


def _outputs(layer: Equilibrium, u: Tensor) -> tuple[Tensor, float]:
    """What the propositions call the output, and the largest gate. For a unit layer z = W'y that is
    y = s(WW'y + u), which has OptEq's form."""
    if not isinstance(layer.map, Chain):
        solution = layer.solve(u)
        gates = solution.gates
        return as_tuple(solution.state)[0], 1.0 if gates is None else float(gates.max())
    twin = precise(layer, tol=1e-6)
    unit = cast(Chain, twin.map).units[0]
    unit.injection = nn.Identity()
    z = cast(Tensor, twin.solve(u).state)
    bound = cast(BoundChain, twin.map.bind(u))
    return bound.units[0].activate(z), 1.0


def convolution_of(injection: nn.Module) -> Tensor | None:
    """The weight of a 3x3 convolution; injections have stride 1."""
    operator = injection.operator if isinstance(injection, Bounded) else injection
    if isinstance(operator, (Conv2d, nn.Conv2d)):
        weight = operator.weight.detach()
        return weight if tuple(weight.shape[2:]) == (_KERNEL, _KERNEL) else None
    return None


def _smallest_singular_value(subject: Subject) -> tuple[float, bool]:
    """Of the trained U, and whether it is known; 0 if U has more columns than rows."""
    weight, shape = convolution_of(subject.injection), tuple(subject.features.shape[1:])
    assert weight is not None
    if weight.shape[0] < shape[0]:
        return 0.0, True
    if math.prod(shape) > _SMALL:
        return 0.0, False
    operator = Conv2d.from_weight(weight.double())
    return float(torch.linalg.svdvals(dense_matrix(operator, shape))[-1]), True
