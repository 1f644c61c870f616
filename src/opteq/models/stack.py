"""Networks of Lipschitz constant 1: layers that keep lengths, one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.gradient import GradientRule, Implicit
from opteq.kernels import Measurement, PatchGaussian, Ridge
from opteq.layer import Equilibrium
from opteq.models.bounded import SortedPairs
from opteq.models.network import Network, Output
from opteq.models.norm_keeping import (
    AlmostOrthogonal,
    CayleyConvolution,
    ConvexPotential,
    Pooled,
    Reflection,
    Rescaled,
    SDPBased,
    SolvedLayer,
    ToDepth,
    UnitRows,
    Widened,
    even,
)
from opteq.operators import Conv2d, PatchProjection, start_orthogonal
from opteq.options import one_of, positive, whole
from opteq.penalties import Free
from opteq.potentials import Huber, Potential, Ramp, SoftRamp, Spline
from opteq.problem import Problem
from opteq.solve import ForwardBackward, Nesterov, Solver

LayerKind = Literal["proximal", "geq", "convex_potential", "almost_orthogonal", "sdp", "cayley"]
PotentialKind = Literal["ramp", "soft_ramp", "huber", "spline"]
# Above this |W| the memory of accelerated forward-backward steps is too short.
_STIFF = 10.0
# Up to here an isometry W with open gates keeps lengths: w / (1 + w^2) is the constant itself.
_GEQ_NORM = 0.6


class Stack(Network):
    """Images to logits by layers that cannot stretch; see `opteq.models.norm_keeping`."""

    def __init__(self, layers: Sequence[nn.Module], head: UnitRows) -> None:
        super().__init__()
        self.layers, self.head = nn.Sequential(*layers), head

    def normalize(self, mean: Tensor, std: Tensor) -> None:
        """Only the mean is taken away: a division would stretch."""
        super().normalize(mean, torch.ones_like(std))

    def compute(self, x: Tensor) -> Output:
        solutions = []
        for layer in self.layers:
            if isinstance(layer, SolvedLayer):
                x, solution = layer.run(x)
                solutions.append(solution)
            else:
                x = layer(x)
        return Output(self.head(x), solutions)


def stack(
    *,
    layer: LayerKind = "proximal",
    channels: tuple[int, ...] = (32,),
    depth: tuple[int, ...] = (4,),
    side: int = 32,
    pool: int = 1,
    first: int = 2,
    hidden: int | None = None,
    potential: PotentialKind = "ramp",
    gain: float = 10.0,
    start: float = 0.7,
    temperature: float = 1.0,
    in_channels: int = 3,
    classes: int = 10,
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> Stack:
    """Stages of `depth` layers with `channels` each. Images of `side` pixels are first averaged
    over blocks of `pool` x `pool` pixels and folded, each block of `first` x `first` into one place
    (later, between stages, each block of 2x2 places). Channels of zeros are added to those that
    there are.

    `layer` "proximal" reflects at the proximal operator of sum psi(Wz + b), with `hidden` rows in W
    for each place (by default as many as channels). |W| is `start` at first and at most `gain`: the
    larger, the harder to solve, but the certificate does not depend on it. "geq" is GEQ's
    equilibrium without a penalty, |W| at most 0.6, divided by its Lipschitz constant. The others
    are the layers of the literature with as many parameters. `temperature` is that of the head; see
    `UnitRows`.
    """
    one_of("layer", layer, get_args(LayerKind))
    if len(channels) != len(depth) or not channels:
        raise OptionError(
            f"{len(channels)} widths for {len(depth)} depths.", "Give one for each stage."
        )
    whole("side", side, least=1)
    # Batches are noisier than a gradient of this tolerance.
    gradient = Implicit(tol=0.1, max_steps=20) if gradient is None else gradient
    own: Solver = ForwardBackward(tol=1e-3, max_steps=200)
    if gain > _STIFF:
        own = Nesterov(tol=1e-3, max_steps=200)
    solver = gradient.solver_or(solver, own)

    def made(width: int) -> list[nn.Module]:
        inner = width if hidden is None else hidden
        if layer == "proximal":
            psi = _potential(potential)
            operator = _operator(width, inner, gain, start)
            return [_reflection(operator, psi, solver, gradient)]
        if layer == "geq":
            return [_geq(width, solver, gradient)]
        if layer == "convex_potential":
            return [ConvexPotential(width, inner)]
        if layer == "sdp":
            return [SDPBased(width, inner)]
        if layer == "cayley":
            return [CayleyConvolution(even(width)), SortedPairs()]
        return [AlmostOrthogonal(width, even(width)), SortedPairs()]

    layers: list[nn.Module] = [Pooled(pool)] if pool > 1 else []
    if side % whole("pool", pool, least=1):
        raise OptionError(f"A side of {side} has no blocks of {pool}.", "Give a multiple.")
    side //= pool
    now, fold = in_channels, first
    for width, count in zip(channels, depth, strict=True):
        if side % fold:
            raise OptionError(f"A side of {side} has no blocks of {fold}.", "Give a multiple.")
        now, side = now * fold**2, side // fold
        layers += [ToDepth(fold)] if fold > 1 else []
        layers += [Widened(width)] if width != now else []
        if width < now:
            raise OptionError(f"{now} channels do not fit into {width}.", f"Give at least {now}.")
        for _ in range(whole("depth", count, least=1)):
            layers += made(width)
        now, fold = width, 2
    return Stack(layers, UnitRows(now * side**2, classes, temperature=temperature))


def _operator(channels: int, hidden: int, gain: float, start: float) -> Conv2d:
    """Near an isometry, times `start`."""
    operator = start_orthogonal(Conv2d(channels, hidden, norm_bound=positive("gain", gain)))
    with torch.no_grad():
        operator.raw.mul_(min(positive("start", start), gain) / gain)
    return operator


def _reflection(
    operator: Conv2d, potential: Potential, solver: Solver, gradient: GradientRule
) -> Reflection:
    bias = nn.Parameter(torch.zeros(operator.out_channels))
    similarity = Measurement() + Ridge(operator, potential, bias=bias)
    problem = Problem(penalty=Free(), similarity=similarity)
    return Reflection(Equilibrium(problem, solver=solver, gradient=gradient))


def _geq(channels: int, solver: Solver, gradient: GradientRule) -> Rescaled:
    """W and H near isometries; patches of 2x2 places of a quarter of the channels, or of half of
    them or all where there are no quarters."""
    split = channels // math.gcd(channels, 4)
    projection = PatchProjection(patch=2, split=split, hidden=4 * split)
    similarity = PatchGaussian(
        Conv2d(channels, channels, norm_bound=_GEQ_NORM), projection, 0.5, learn_gamma=True
    )
    problem = Problem(penalty=Free(), similarity=start_orthogonal(similarity))
    return Rescaled(Equilibrium(problem, solver=solver, gradient=gradient))


def _potential(kind: PotentialKind) -> Potential:
    one_of("potential", kind, get_args(PotentialKind))
    if kind == "ramp":
        return Ramp()
    if kind == "soft_ramp":
        return SoftRamp()
    return Huber() if kind == "huber" else Spline()
