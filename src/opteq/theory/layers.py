"""What is known of each kind of map: contraction, uniqueness, and how far its equilibrium moves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from opteq.equilibrium.base import EquilibriumMap
from opteq.equilibrium.branches import Branch, Branches
from opteq.equilibrium.chain import Chain, chain_curvature
from opteq.equilibrium.monotone import Monotone
from opteq.equilibrium.proximal import Proximal
from opteq.equilibrium.unit import Unit
from opteq.gradient import Unrolled
from opteq.kernels import Gaussian, Linear, PatchGaussian
from opteq.layer import Equilibrium
from opteq.problem.curvature import GAUSSIAN_BACKWARD, Curvature, largest
from opteq.solve import Picard
from opteq.theory.lipschitz import gaussian_lipschitz, linear_lipschitz
from opteq.theory.modules import module_lipschitz
from opteq.theory.trust import distrusted, refuted

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerBounds:
    """For one map, with the weights it has now."""

    contraction: float
    where: str
    """The norm in which it contracts, and why."""
    convexity: float
    """Modulus of strong monotonicity of z - T(z), or of the subdifferential of G, which then is
    strongly convex; not positive: none is known."""
    smoothness: float
    """Largest curvature of the smooth part of G, where there is one; else inf."""
    unique: bool
    why_unique: tuple[str, str]
    """Condition and reference."""
    driven: float
    """How far the state, or what it is made of, can move for an input that moves by 1: for branches
    z_i = W_i'y_i the y_i together."""
    pushed: float
    """How far one application of the map moves for an input that moves by 1, at a fixed state."""
    how: tuple[str, bool, str]
    """Condition, whether it holds, and reference of the Lipschitz constant."""
    parts: tuple[float, ...] = (1.0,)
    """The norm by which each part of the state follows: one, or |W_i| for each branch."""
    each: tuple[float, ...] | None = None
    """How far each part can move for itself, where that is known."""
    minimiser: float | None = None
    """How far the minimiser of the objective can move, for a map that jumps there and so has no
    fixed point that a solve could return."""

    @property
    def lipschitz(self) -> float:
        """Injection to equilibrium."""
        together = max(self.parts) * self.driven
        return together if self.each is None else min(together, math.hypot(*self.each))

    def fused(self, scales: Sequence[float]) -> float:
        """Injection to the sum of the parts, each times an operator of that norm."""
        together = self.driven * math.hypot(
            *(a * b for a, b in zip(self.parts, scales, strict=True))
        )
        if self.each is None:
            return together
        return min(together, sum(a * b for a, b in zip(self.each, scales, strict=True)))


def layer_bounds(map: EquilibriumMap, input_shape: Shape | None = None) -> LayerBounds:
    """`input_shape` is that of the layer's input without its batch: bounds for branches at several
    scales depend on it. Of a map that does not do what its bounds were written for nothing is
    known."""
    found = distrusted(map) or refuted(map)
    if found is not None:
        return nothing_known(found)
    rules = {Proximal: _proximal, Chain: _chain, Monotone: _monotone}
    if type(map) is Branches:
        return _branches(map, input_shape)
    return rules.get(type(map), _other)(map)


def nothing_known(why: str) -> LayerBounds:
    """For a map of which no bound can be trusted."""
    return LayerBounds(
        contraction=math.inf,
        where=why,
        convexity=-math.inf,
        smoothness=math.inf,
        unique=False,
        why_unique=(why, "nothing is known"),
        driven=math.inf,
        pushed=math.inf,
        how=(why, False, "nothing is known"),
    )


def _chain(map: Chain) -> LayerBounds:
    units = cast(list[Unit], list(map.units))
    curvature = chain_curvature(units, map.regularizer, now=True)
    contraction = largest(curvature.contraction)
    pushed, driven = math.inf, math.inf
    how = ("no regulariser inside the map", False, "problems, chains, branches")
    if map.regularizer is None:
        pushed, how = _through_chain(units)
        driven = pushed / (1 - contraction) if contraction < 1 else math.inf
    return replace(
        _contracting(contraction, "product of the units' constants"),
        driven=driven,
        pushed=pushed,
        how=how,
    )


def _other(map: EquilibriumMap) -> LayerBounds:
    return _contracting(largest(map.curvature().contraction), "curvature() of the map")


def _contracting(contraction: float, where: str) -> LayerBounds:
    """Of a map of which its Lipschitz constant alone is known."""
    return replace(
        nothing_known("a map with a known bound"),
        contraction=contraction,
        where=where,
        convexity=1 - contraction,
        unique=contraction < 1,
        why_unique=("contraction", "Banach's theorem"),
    )


def as_computed(layer: Equilibrium, bounds: LayerBounds) -> LayerBounds:
    """The bounds of what the layer returns: of its equilibrium, or where it is by its gradient rule
    K applications of its map from 0, z <- (1 - d) z + d T(z), of these:
    d p (1 + a + ... + a^(K - 1)), a = 1 - d + d c, with c and p the constants of T in z and u."""
    rule, solver = layer.gradient, layer.solver
    if not rule.is_forward_pass:
        return bounds
    plain = (
        isinstance(rule, Unrolled)
        and isinstance(solver, Picard)
        and not (isinstance(layer.map, Chain) and layer.map.start_at == "features")
        and math.isfinite(bounds.contraction * bounds.pushed)
    )
    if not plain:
        how = ("unrolled plain steps", False, "no bound is known for this rule")
        return replace(bounds, driven=math.inf, each=None, how=how)
    assert isinstance(rule, Unrolled)
    assert isinstance(solver, Picard)
    factor = 1 - solver.damping + solver.damping * bounds.contraction
    total = solver.damping * bounds.pushed * _geometric(factor, rule.steps)
    how = (f"{rule.steps} applications from 0", True, "sum of their constants")
    return replace(bounds, driven=total, how=how)


def _geometric(factor: float, terms: int) -> float:
    """1 + factor + ... + factor^(terms - 1)."""
    total = 0.0
    for _ in range(terms):
        total = 1 + factor * total
    return total


def _proximal(map: Proximal) -> LayerBounds:
    curvature = _curvature(map)
    contraction, high = largest(curvature.contraction), largest(curvature.high)
    lipschitz, how = _lipschitz(map)
    return LayerBounds(
        contraction=contraction,
        where="|H|^2 |W|^2 and the prox is 1-Lipschitz",
        convexity=1 - high,
        smoothness=largest(curvature.smoothness),
        unique=contraction < 1 or high < 1,
        why_unique=(
            "G strongly convex",
            f"Hessian of S below 1; Gaussian: |W|^2|H|^2 < {1 / GAUSSIAN_BACKWARD:.4f}",
        ),
        driven=lipschitz,
        pushed=_pushed(map),
        how=how,
    )


def _curvature(map: Proximal) -> Curvature:
    """With the norms that the weights have now, where they are known; else with their bounds."""
    known, w = map.curvature(), _weight_norm(map)
    if w is None:
        return known
    square = w * w
    own = (
        Curvature(0.0, square)
        if type(map.problem.similarity) is Linear
        else Curvature(-square, GAUSSIAN_BACKWARD * square)
    )
    low, high = -largest(-cast(float, known.low)), largest(known.high)
    return Curvature(max(low, cast(float, own.low)), min(high, cast(float, own.high)))


def _weight_norm(map: Proximal) -> float | None:
    """|W|, or |W||H| with patches."""
    similarity = map.problem.similarity
    if type(similarity) in (Linear, Gaussian):
        return cast(Linear | Gaussian, similarity).operator.norm()
    if type(similarity) is PatchGaussian:
        return similarity.operator.norm() * similarity.projection.norm()
    return None


def _lipschitz(map: Proximal) -> tuple[float, tuple[str, bool, str]]:
    similarity, w = map.problem.similarity, _weight_norm(map)
    if w is None:
        return math.inf, ("a kernel with a known bound", False, "linear and Gaussian kernels")
    if type(similarity) is Linear:
        bound = linear_lipschitz(w)
        return bound, ("|W| < 1", math.isfinite(bound), "1 / (1 - |W|^2)")
    if type(similarity) is PatchGaussian:
        bound = similarity.projection.norm() * gaussian_lipschitz(w)
    else:
        bound = gaussian_lipschitz(w, parts=False)
    condition = f"|W|^2 |H|^2 < {1 / GAUSSIAN_BACKWARD:.4f}"
    return bound, (condition, math.isfinite(bound), "sector bound, any gamma")


def _pushed(map: Proximal) -> float:
    similarity = map.problem.similarity
    if type(similarity) is Linear:
        return 1.0
    if type(similarity) is Gaussian:
        return similarity.operator.norm()
    if type(similarity) is PatchGaussian:
        projection = similarity.projection.norm()
        return similarity.operator.norm() * projection * projection
    return math.inf


def _through_chain(units: Sequence[Unit]) -> tuple[float, tuple[str, bool, str]]:
    """T = f_L o ... o f_1: what enters at unit l is passed on by those after it. The constant of
    one application, and (condition, holds, reference) of that of the equilibrium."""
    reached, factor = 0.0, 1.0
    for unit in units:
        if unit.change is not None or unit.mixing is not None:
            return math.inf, ("plain units", False, "no change of variables, no mixing")
        alpha, norm = float(torch.as_tensor(unit.alpha)), unit.operator.norm()
        own = unit.lipschitz(now=True)
        reached = own * reached + alpha * norm * module_lipschitz(unit.injection)
        factor *= own
    condition = ("product of the units' constants < 1", factor < 1, "chain rule, |W_l| and |U_l|")
    return reached, condition


def _branches(map: Branches, input_shape: Shape | None) -> LayerBounds:
    """With y_i = s(W_i h_i(z) + U_i g + b_i) and z_i = W_i'y_i: s is firmly nonexpansive, so

        |dy|^2 <= <dy, du> + sum of <dz_i, dh_i> <= |dy| |du| + (1 - m) |dy|^2,

    m the modulus of strong convexity of the objective in y. So |dy| <= |du| / m. Without diversity
    also |dy_i| <= |du_i| + sum over j of N_ij |dy_j|, N_ij = |W_i| size_ij |W_j|, so that the
    vector of the |dy_i| is at most (I - N)^-1 times that of the |du_i|.
    """
    branches = cast(list[Branch], list(map.branches))
    norms = [branch.operator.norm() for branch in branches]
    shapes = None if input_shape is None else _state_shapes(map, input_shape)
    slopes = map.coupling.slopes(len(branches), shapes)
    rows = slopes.size.sum(1).tolist()
    contraction = max(w * w * row for w, row in zip(norms, rows, strict=True))
    w = torch.tensor(norms, dtype=torch.float64)
    upward = slopes.upward * w[:, None] * w
    known = bool(upward.isfinite().all())
    convexity = 1 - float(torch.linalg.eigvalsh(upward)[-1]) if known else -math.inf
    injected = [branch.injection.norm() for branch in branches]
    condition = "G strongly convex in y"
    if shapes is None and not known:
        condition += "; needs input_shape"
    found = LayerBounds(
        contraction=contraction,
        where="in the norm of the largest branch",
        convexity=convexity,
        smoothness=math.inf,
        unique=contraction < 1 or convexity > 0,
        why_unique=(condition, "1 - |W|^2 times the coupling's slope upwards"),
        parts=tuple(norms),
        driven=math.hypot(*injected) / convexity if convexity > 0 else math.inf,
        pushed=math.inf,
        how=(condition, convexity > 0, "|W| |(U_1, ..., U_L)| / modulus"),
        each=_each(slopes.size * w[:, None] * w, w, injected),
    )
    return found if map.coupling.continuous else _jumping(found)


def _jumping(found: LayerBounds) -> LayerBounds:
    """What is left where the map jumps: a statement about the minimiser, none about solves."""
    why = "a map that does not jump"
    return replace(
        found,
        contraction=math.inf,
        unique=False,
        why_unique=(why, 'diversity="smooth" has an equilibrium'),
        driven=math.inf,
        how=(why, False, 'diversity="smooth" has a bound'),
        each=None,
        minimiser=found.lipschitz,
    )


def _each(N: Tensor, w: Tensor, injected: list[float]) -> tuple[float, ...] | None:
    """|W_i| times the entries of (I - N)^-1 (|U_i|), if the sum of N's powers is finite."""
    if not bool(N.isfinite().all()) or float(torch.linalg.eigvals(N).abs().max()) >= 1:
        return None
    eye = torch.eye(len(w), dtype=w.dtype)
    moved = torch.linalg.solve(eye - N, torch.tensor(injected, dtype=w.dtype))
    return tuple((w * moved).tolist())


def _state_shapes(map: Branches, input_shape: Shape) -> list[Shape]:
    weight = next(itertools.chain(map.parameters(), map.buffers()), torch.zeros(()))
    return map.bind(weight.new_zeros(1, *input_shape)).shapes()


def _monotone(map: Monotone) -> LayerBounds:
    symmetric = map.symmetric.norm()
    contraction = abs(1 - map.modulus) + symmetric * symmetric + 2 * map.skew.norm()
    return LayerBounds(
        contraction=contraction,
        where="|W| and the activation is 1-Lipschitz",
        convexity=map.modulus,
        smoothness=map.lipschitz(),
        unique=True,
        why_unique=("I - W strongly monotone", "by the form of W, for all weights"),
        driven=1 / map.modulus,
        pushed=1.0,
        how=("I - W strongly monotone", True, "1 / modulus"),
    )
