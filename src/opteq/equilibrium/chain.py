"""Deep OptEq: the equilibrium of a chain of unit layers [OptEq equation 5]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast

import torch
from torch import Tensor, nn

from opteq.equilibrium.base import BoundMap, EquilibriumMap
from opteq.equilibrium.bounds import Bounds
from opteq.equilibrium.unit import BoundUnit, Unit
from opteq.errors import OptionError, ShapeError
from opteq.operators.base import Norms, Shape, promised
from opteq.options import one_of, strict_options
from opteq.problem.curvature import Curvature
from opteq.problem.regularizer import InsideMap
from opteq.states import State, per_sample_sum


@strict_options
class Chain(EquilibriumMap):
    """z = f_L o ... o f_1 (z) with unit layers f_l of the same state [OptEq equations 5 and 6].

    The layer's input is the features g, from which each unit computes its own injection, once per
    solve. Contractive if every |W_l| <= 1 and one is below 1. `regularizer` puts a feature
    regularizer inside the map, T(T_R(z)) [OptEq section 5.1]. Solves start at zero, or with
    `start="features"` at g, as in the paper.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        *,
        regularizer: InsideMap | None = None,
        start: Literal["zero", "features"] = "zero",
    ) -> None:
        super().__init__()
        if not units:
            raise OptionError("A chain of no units.", "Give at least one Unit.")
        self.units = nn.ModuleList(units)
        self.regularizer = regularizer
        self.start_at = one_of("start", start, ("zero", "features"))

    def _each(self) -> list[Unit]:
        return cast(list[Unit], list(self.units))

    def bind(self, features: Tensor, /) -> BoundChain:
        units = [unit.bind(features) for unit in self._each()]
        start = units[0].zeros()
        if self.start_at == "features":
            if features.shape != start.shape:
                raise ShapeError(
                    f"The features are {tuple(features.shape)}, the state {tuple(start.shape)}.",
                    "They must agree to start at the features; use start='zero'.",
                )
            start = features.detach()
        return BoundChain(units, self.regularizer, start)

    @property
    def starts_at_zero(self) -> bool:  # type: ignore[override]
        return self.start_at == "zero"

    def curvature(self) -> Curvature:
        factor = _contraction(self._each(), self.regularizer)
        return Curvature(-factor, factor)

    def bounds(self, norms: Norms = promised, input_shape: Shape | None = None) -> Bounds:
        """T = f_L o ... o f_1: what enters at unit l is passed on by those after it."""
        units = self._each()
        contraction = _contraction(units, self.regularizer, norms)
        found = Bounds.contracting(contraction, "product of the units' constants")
        if self.regularizer is not None:
            return found.without_lipschitz("no regularizer inside the map", "chains without one")
        pushed = 0.0
        for unit in units:
            pushed = unit.lipschitz(norms) * pushed + unit.pushed(norms)
        if any(unit.change is not None or unit.mixing is not None for unit in units):
            return found.without_lipschitz("plain units", "no change of variables, no mixing")
        return replace(
            found,
            pushed=pushed,
            driven=pushed / (1 - contraction) if contraction < 1 else math.inf,
            how=(
                "product of the units' constants < 1",
                contraction < 1,
                "chain rule, |W_l| and |U_l|",
            ),
        )

    def size_path(self) -> list[nn.Module]:
        return [part for unit in self._each() for part in (unit.operator, unit.injection)]


def _contraction(
    units: Sequence[Unit], regularizer: InsideMap | None, norms: Norms = promised
) -> float:
    """The product of the constants of all parts."""
    factor = math.prod(unit.lipschitz(norms) for unit in units)
    return factor if regularizer is None else factor * regularizer.lipschitz()


class BoundChain(BoundMap):
    """`Chain` with its features."""

    def __init__(
        self, units: list[BoundUnit], regularizer: InsideMap | None, start: Tensor
    ) -> None:
        self.units, self.regularizer, self._start = units, regularizer, start
        self.independent = regularizer is None or not regularizer.regularizer.compares_samples

    def __call__(self, z: State) -> Tensor:
        return self.layers(cast(Tensor, z))[-1]

    def layers(self, z: Tensor) -> list[Tensor]:
        """The outputs z_1, ..., z_L of the units for a chain started at z."""
        if self.regularizer is not None:
            z = self.regularizer(z)
        outputs = []
        for unit in self.units:
            z = unit(z)
            outputs.append(z)
        return outputs

    def start(self) -> Tensor:
        return self._start

    def select(self, index: Tensor) -> BoundChain:
        units = [unit.select(index) for unit in self.units]
        return BoundChain(units, self.regularizer, self._start[index])

    def curvature(self) -> Curvature:
        factor = _contraction([unit.unit for unit in self.units], self.regularizer)
        return Curvature(-factor, factor)

    def objective(self, z: State) -> Tensor | None:
        """The hidden objective where the paper gives one: one unit, phi or its envelope
        [theorem 1, table 1]; two units, the sum of both envelopes and |z_1 - z_0|^2 / 2
        [corollary 1]; evaluated at the outputs of the units."""
        plain = all(unit.unit.change is None and unit.unit.mixing is None for unit in self.units)
        if self.regularizer is not None or not plain or len(self.units) > 2:
            return None
        first = cast(Tensor, z)
        if len(self.units) == 1:
            return self.units[0].envelope(first)
        with torch.no_grad():
            middle, last = self.layers(first)
        return (
            self.units[0].envelope(first)
            + self.units[1].envelope(middle)
            + per_sample_sum((middle - last).square()) / 2
        )

    def blocks(self, z: Tensor) -> tuple[Tensor, ...]:
        """z~ = (z_1, ..., z_(L-1), z_0): what the units hand on when the chain starts at an
        equilibrium z_0 = z [OptEq lemma 3]."""
        return (*self.layers(z)[:-1], z)

    def block_residual(self, blocks: tuple[Tensor, ...]) -> Tensor:
        """|z~ - f~(P z~)| for each sample, with f~ all units side by side and P the shift by one
        block: z~ = alpha W~'s(W~ P z~ + U~ g + b~) + (1 - alpha) P z~ [OptEq equation 7, which
        prints z~ for P z~ inside of s]. Zero exactly if z_0 is an equilibrium of the chain."""
        shifted = (blocks[-1], *blocks[:-1])
        moved = (unit(z) for unit, z in zip(self.units, shifted, strict=True))
        gaps = [per_sample_sum((a - b).square()) for a, b in zip(blocks, moved, strict=True)]
        return torch.stack(gaps).sum(0).sqrt()

    def inclusion(self, blocks: tuple[Tensor, ...], *, steps: int = 200) -> tuple[Tensor, ...]:
        """The gradient of Phi at z~ plus (I - P) z~, block by block: zero at an equilibrium, for
        any number of units [OptEq theorem 2]. Phi is the sum of the units' envelopes
        alpha M_phi^(1 - alpha), so each alpha must be below 1.

        The gradient of a unit's envelope at p is v - p with f(v) = p: there is one such v, because
        f is strongly monotone, and v <- v + p - f(v) tends to it by the factor alpha.
        """
        found = []
        for unit, p, before in zip(self.units, blocks, (blocks[-1], *blocks[:-1]), strict=True):
            if not float(torch.as_tensor(unit.alpha)) < 1:
                raise OptionError("With alpha = 1 Phi has no gradient.", "Give alpha below 1.")
            v = p
            for _ in range(steps):
                v = v + p - unit(v)
            found.append((v - p) + (p - before))
        return tuple(found)
