"""Gradients through a few applications of the map at the solution."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from opteq.equilibrium.base import BoundMap, State, as_tuple, like
from opteq.gradient.rule import GradientRule, join, pick
from opteq.options import fraction, strict_options, whole
from opteq.solve import Solution


@strict_options
@dataclass(frozen=True, kw_only=True)
class Phantom(GradientRule):
    """Differentiate `steps` damped applications z <- (1 - damping) z + damping T(z) that start at
    the solution [GEQ algorithm 1].

    An approximation of the implicit gradient whose error shrinks like the contraction factor to
    the power `steps`; it is wrong where the map is not a contraction.
    """

    steps: int = 5
    damping: float = 0.8

    def __post_init__(self) -> None:
        whole("steps", self.steps, least=1)
        fraction("damping", self.damping)

    def attach(
        self, bound: BoundMap, state: State, solution: Solution, image: State | None = None
    ) -> State:
        return _through(bound, state, self.steps, self.damping, image)


@strict_options
@dataclass(frozen=True, kw_only=True)
class OneStep(GradientRule):
    """Differentiate one application of the map at the solution, as if the state it is applied to
    were constant [MOptEq A.11]: the cheapest rule, and the coarsest."""

    def attach(
        self, bound: BoundMap, state: State, solution: Solution, image: State | None = None
    ) -> State:
        return _through(bound, state, 1, 1.0, image)


def _through(
    bound: BoundMap, state: State, steps: int, damping: float, image: State | None = None
) -> State:
    with torch.enable_grad():
        moving = damp(state, bound(state) if image is None else image, damping)
        for _ in range(steps - 1):
            moving = damp(moving, bound(moving), damping)
    finite = torch.stack(
        [part.detach().isfinite().flatten(1).all(1) for part in as_tuple(moving)]
    ).all(0)
    if not bool(finite.all()):
        # Samples that ran away stay constants: their infinities would spoil every gradient.
        keep = finite.nonzero()[:, 0]
        if not len(keep):
            return state
        attached = _through(bound.select(keep), pick(state, keep), steps, damping)
        return join(state, keep, attached)
    # The value stays the solver's; only the derivative is that of the applications.
    parts = tuple(
        s + (m - m.detach()) for s, m in zip(as_tuple(state), as_tuple(moving), strict=True)
    )
    return like(state, parts)


def damp(z: State, image: State, damping: float) -> State:
    """(1 - damping) z + damping T(z)."""
    pairs = zip(as_tuple(z), as_tuple(image), strict=True)
    if damping == 1:
        return like(z, tuple(b.to(a) for a, b in pairs))
    return like(z, tuple(torch.lerp(a, b.to(a), damping) for a, b in pairs))
