"""Gradients through a few applications of the map at the solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap, vector_jacobian
from opteq.gradient.attach import Adjoint, Map, Rules, attach_implicit, attach_nothing
from opteq.gradient.rule import GradientRule
from opteq.options import fraction, strict_options, whole
from opteq.solve import Solution
from opteq.states import State, as_tuple, damp, expand, in_order_of, join, like, pick


@strict_options
@dataclass(frozen=True, kw_only=True)
class Phantom(GradientRule):
    """Differentiate `steps` damped applications z <- (1 - damping) z + damping T(z) that start at
    the solution [GEQ algorithm 1].

    There they do not move z, so all of them have the Jacobian J of T at the solution, and the
    gradient g of the state becomes the gradient

        w = damping (I + M' + ... + M'^(steps - 1)) g,     M = (1 - damping) I + damping J

    of one application: steps - 1 products with J', and one derivative in weights and input. An
    approximation of the implicit gradient whose error shrinks like the contraction factor of the
    damped map to the power `steps`; it is wrong where the map is not a contraction.
    """

    steps: int = 5
    damping: float = 0.8

    def __post_init__(self) -> None:
        whole("steps", self.steps, least=1)
        fraction("damping", self.damping)

    def attach(
        self, bound: BoundMap, state: State, solution: Solution, image: State | None = None
    ) -> State:
        rules = Rules(lambda equation: self._series(bound, equation), self._higher)
        return attach_implicit(bound, state, rules, image)

    def _higher(self, equation: Adjoint) -> State:
        return self._series(None, equation)

    def _product(self, bound: BoundMap | None, equation: Adjoint) -> Map:
        """w -> J'w, in closed form where the map has one."""
        z = equation.z
        if bound is not None and isinstance(z, Tensor):
            linear = bound.symmetric_linearization(z, cast(Tensor | None, equation.image))
            if linear is not None:
                return lambda w: linear.transposed(cast(Tensor, w))
        return vector_jacobian(equation.map, z)

    def _series(self, bound: BoundMap | None, equation: Adjoint) -> State:
        z, g = equation.z, equation.g
        product = self._product(bound, equation)
        if isinstance(z, Tensor):
            g = in_order_of(cast(Tensor, g), z)
        terms = total = as_tuple(g)
        for _ in range(self.steps - 1):
            moved = as_tuple(product(like(z, terms)))
            terms = tuple(
                torch.lerp(a, b.to(a), self.damping) for a, b in zip(terms, moved, strict=True)
            )
            total = tuple(a + b for a, b in zip(total, terms, strict=True))
        # Samples that ran away stay constants: their infinities would spoil every gradient.
        finite = torch.stack([part.isfinite().flatten(1).all(1) for part in total]).all(0)
        return like(
            z, tuple(torch.where(expand(finite, part), self.damping * part, 0.0) for part in total)
        )


@strict_options
@dataclass(frozen=True, kw_only=True)
class OneStep(GradientRule):
    """Differentiate one application of the map at the solution, as if the state it is applied to
    were constant [MOptEq A.11]: the cheapest rule, and the coarsest."""

    def attach(
        self, bound: BoundMap, state: State, solution: Solution, image: State | None = None
    ) -> State:
        return _once(bound, state, image)


def _once(bound: BoundMap, state: State, image: State | None) -> State:
    if image is None:
        with torch.enable_grad():
            image = bound(state)
    finite = torch.stack(
        [part.detach().isfinite().flatten(1).all(1) for part in as_tuple(image)]
    ).all(0)
    if not bool(finite.all()):
        # Samples that ran away stay constants: their infinities would spoil every gradient.
        keep = finite.nonzero()[:, 0]
        if not len(keep):
            return attach_nothing(bound, state)
        return join(state, keep, _once(bound.select(keep), pick(state, keep), None))
    # The value stays the solver's; only the derivative is that of the application.
    moved = damp(state, image, 1.0)
    parts = tuple(
        s + (m - m.detach()) for s, m in zip(as_tuple(state), as_tuple(moved), strict=True)
    )
    return like(state, parts)
