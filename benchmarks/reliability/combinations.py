"""Certificates of random combinations against dense Jacobians.

    python benchmarks/reliability/combinations.py [--layers 2000] [--models 500] [--seed 0]

Layers of every public map, kernel, coupling, penalty and operator, with weights that are random or
mostly zero; models on images that are not square, with parts exchanged, hooked or used twice, in
training and in evaluation mode. For each, in float64 and by nothing but autograd and dense linear
algebra:

- the Jacobian of the map at random states is not longer than `contraction`;
- where `unique` is claimed, solves from far apart end at one point;
- d(equilibrium)/d(injection) = (I - T_z)^-1 T_u, and d(logits)/d(image), are not longer than
  `lipschitz`.

Exits with 1 if there was a violation. The suite runs the same with few draws.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

import opteq
from opteq.equilibrium import (
    Affine,
    Branch,
    Branches,
    Chain,
    EquilibriumMap,
    Monotone,
    Proximal,
    Unit,
)
from opteq.errors import NotConvergedWarning
from opteq.kernels import (
    Gaussian,
    Linear,
    Measurement,
    PatchGaussian,
    Polynomial,
    Ridge,
    Sigmoid,
)
from opteq.operators import (
    AveragePool,
    Composition,
    Conv2d,
    Dense,
    DepthwiseSeparable,
    LinearOperator,
    Mask,
    PatchProjection,
    WeightedOperator,
)
from opteq.penalties import ELU, Activation, Box, LeakyReLU, NonNegative, Shrinkage, Softplus, Tanh
from opteq.penalties import Sigmoid as SigmoidPenalty
from opteq.potentials import Huber, MinimaxConcave, Potential, Spline, Welsch
from opteq.problem import (
    HeritageDiversity,
    Independent,
    InsideMap,
    Penalty,
    Problem,
    Similarity,
    SquaredNorm,
)
from opteq.solve import Anderson, ForwardBackward, Picard
from opteq.states import State, as_tuple, like
from opteq.theory import certificate, precise

ROUNDING = 1 + 1e-6
Finding = tuple[str, float, float]
"""What was asked, what was found, what was allowed."""


class Draw:
    """Choices from one seed."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)

    def pick(self, *options: Any) -> Any:
        return options[int(torch.randint(len(options), ()))]

    def number(self, low: float, high: float) -> float:
        return float(torch.empty(()).uniform_(low, high))


def penalty(draw: Draw) -> Penalty:
    kinds: tuple[Callable[[], Penalty], ...] = (
        NonNegative,
        NonNegative,
        Box,
        Shrinkage,
        LeakyReLU,
        lambda: LeakyReLU(0.3, learned=True),
        Tanh,
        SigmoidPenalty,
        Softplus,
        ELU,
        lambda: Activation(torch.arctan),
    )
    return draw.pick(*kinds)()


def operator(draw: Draw, width: int, shape: tuple[int, ...], norm: float) -> LinearOperator:
    """From states of this shape to as many channels as `width`."""
    if len(shape) == 1:
        return draw.pick(
            lambda: Dense(shape[0], width, norm_bound=norm),
            lambda: Composition(
                Dense(5, width, norm_bound=norm), Dense(shape[0], 5, norm_bound=1.0)
            ),
        )()
    taps = (draw.pick(1, 3), draw.pick(1, 3))
    return draw.pick(
        lambda: Conv2d(shape[0], width, taps, norm_bound=norm),
        lambda: Conv2d(shape[0], width, taps, norm_bound=norm, image_size=(shape[1], shape[2])),
        lambda: Conv2d(shape[0], width, taps, norm_bound=norm, padding_mode="circular"),
        lambda: DepthwiseSeparable(shape[0], width, norm_bound=norm),
    )()


def prior(
    draw: Draw, shape: tuple[int, ...], width: int, norm: float
) -> tuple[Similarity, tuple[int, ...]]:
    """A measurement of states and a prior on them, and the shape of what is measured."""
    potentials: tuple[Callable[[], Potential], ...] = (
        lambda: Huber(draw.number(0.5, 8), draw.number(0.05, 1)),
        lambda: Welsch(draw.number(0.3, 2.5), draw.number(0.1, 5)),
        lambda: Welsch((draw.number(0.3, 2), draw.number(0.3, 2)), (0.5, draw.number(1, 500))),
        lambda: MinimaxConcave(draw.number(0.5, 8), draw.number(0.05, 1), draw.number(0.1, 1.2)),
        lambda: Spline(draw.number(0.5, 8), draw.number(0, 1), extent=draw.number(0.5, 3)),
    )
    ridge = Ridge(
        operator(draw, width, shape, norm),
        draw.pick(*potentials)(),
        strength=draw.number(0.2, 1.2),
        group=draw.pick(1, 2),
    )
    for parameter in ridge.potential.parameters():
        parameter.data.normal_(std=3)
    weights = draw.number(0.3, 1) + 0.5 * torch.rand(shape)
    measured = draw.pick(Measurement(), Measurement(Mask(weights)), 0.6 * Measurement())
    return measured + ridge, shape


def similarity(draw: Draw, shape: tuple[int, ...]) -> tuple[Similarity, tuple[int, ...]]:
    """A kernel for states of this shape, and the shape of its injections."""
    width = draw.pick(2, 4)
    inner = (width, *shape[1:])
    norm = draw.number(0.3, 1.4)
    kind = draw.pick(
        "linear", "gaussian", "gaussian", "patches", "sigmoid", "polynomial", "sum", "prior"
    )
    if kind == "patches" and len(shape) == 3 and not (shape[1] % 2 or shape[2] % 2):
        projection = PatchProjection(patch=2, split=draw.pick(1, 2), hidden=draw.pick(3, 10))
        W = operator(draw, width, shape, norm)
        return PatchGaussian(W, projection, gamma=draw.number(0.1, 3)), inner
    if kind in ("gaussian", "patches"):
        W = operator(draw, width, shape, norm)
        return Gaussian(W, gamma=draw.number(0.05, 3), learn_gamma=draw.pick(True, False)), inner
    if kind == "prior":
        return prior(draw, shape, width, norm)
    W = operator(draw, width, shape, min(norm, 0.97))
    if kind == "sigmoid":
        return Sigmoid(W, average=True), shape
    if kind == "polynomial":
        return Polynomial(W), shape
    other = operator(draw, width, shape, 0.5)
    return (
        (Linear(W) * 0.5 + draw.pick(1.0, -0.7) * Linear(other), shape)
        if kind == "sum"
        else (
            Linear(W),
            shape,
        )
    )


def chain(draw: Draw) -> tuple[EquilibriumMap, tuple[int, ...]]:
    units = []
    for _ in range(draw.pick(1, 2, 3)):
        change = None
        if draw.pick(0, 1):
            scale = draw.pick(2.0, torch.rand(4) + 0.5)
            turn = torch.linalg.qr(torch.randn(4, 4)).Q
            change = Affine(
                scale=scale, shift=0.3, rotation=draw.pick(None, Dense.from_weight(turn))
            )
        mixing = Dense(5, 3, norm_bound=1.0) if draw.pick(0, 0, 1) else None
        units.append(
            Unit(
                Dense(4, 5, norm_bound=draw.number(0.4, 0.99)),
                injection=nn.Linear(4, 5),
                penalty=penalty(draw),
                alpha=draw.pick(1.0, 0.6, "learned"),
                change=change,
                mixing=mixing,
            )
        )
    inside = draw.pick(None, None, InsideMap(SquaredNorm(), weight=draw.number(0.1, 0.5)))
    return Chain(units, regularizer=inside), (4,)


def branches(draw: Draw) -> tuple[EquilibriumMap, tuple[int, ...]]:
    size = draw.pick((4, 4), (2, 4), (4, 2))
    parts = []
    for factor in draw.pick((1, 1), (1, 2), (1, 2, 1)):
        U: LinearOperator = Conv2d(2, 2, draw.pick(1, 3), norm_bound=draw.number(0.5, 2))
        U = U if factor == 1 else U @ AveragePool(factor)
        W = Conv2d(3, 2, draw.pick(1, 3), norm_bound=draw.number(0.3, 0.97))
        parts.append(Branch(W, U, channels=2, penalty=penalty(draw)))
    coupling = draw.pick(
        Independent(),
        HeritageDiversity(0.0),
        HeritageDiversity(draw.number(0.01, 0.1)),
        HeritageDiversity(0.05, heritage=False),
        HeritageDiversity(draw.number(0.0, 0.1), resampling="isometric"),
    )
    order = draw.pick("sequential", "simultaneous")
    return Branches(parts, coupling=coupling, order=order), (2, *size)


def layer(draw: Draw) -> tuple[opteq.Equilibrium, tuple[int, ...]]:
    """A random layer in float64 and the shape of its input."""
    kind = draw.pick("problem", "problem", "problem", "chain", "branches", "monotone")
    hidden: EquilibriumMap
    if kind == "chain":
        hidden, shape = chain(draw)
    elif kind == "branches":
        hidden, shape = branches(draw)
    elif kind == "monotone":
        A, B = (Dense(4, 4, norm_bound=draw.pick(None, 0.9)) for _ in range(2))
        hidden, shape = Monotone(A, B, modulus=draw.number(0.1, 1.5), penalty=penalty(draw)), (4,)
    else:
        state = draw.pick((4,), (6,), (2, 2, 4), (2, 4, 4), (2, 1, 6))
        kernel, shape = similarity(draw, state)
        hidden = Proximal(Problem(penalty=penalty(draw), similarity=kernel))
    if draw.pick(0, 1):  # mostly zero
        for part in hidden.modules():
            if isinstance(part, WeightedOperator):
                part.raw.data.mul_(torch.rand_like(part.raw) < 0.3).mul_(draw.pick(1, 5))
    splits = isinstance(hidden, (Proximal, Monotone)) and math.isfinite(
        float(torch.as_tensor(hidden.curvature().smoothness).max())
    )
    options = {"tol": 1e-12, "max_steps": 3000, "on_failure": "ignore"}
    solver = ForwardBackward(**options) if splits else draw.pick(Anderson, Picard)(**options)
    made = opteq.Equilibrium(hidden, solver=solver, allow_uncertified=True).double()
    return made.train(draw.pick(True, False)), shape


def flat(state: State) -> Tensor:
    return torch.cat([part.flatten() for part in as_tuple(state)])


def unflat(vector: Tensor, template: State) -> State:
    pieces = vector.split([part.numel() for part in as_tuple(template)])
    pairs = zip(pieces, as_tuple(template), strict=True)
    return like(template, tuple(a.view_as(b) for a, b in pairs))


def spectral(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2)) if matrix.numel() else 0.0


def of_layer(draw: Draw) -> Iterator[Finding]:
    made, shape = layer(draw)
    found = certificate(made, input_shape=shape)
    name = type(made.map).__name__
    made.eval()
    u = draw.number(0.2, 3) * torch.randn(1, *shape, dtype=torch.float64)
    bound = made.map.bind(u)
    template = bound.start()
    blocks = [part.numel() for part in as_tuple(template)]

    def moved(vector: Tensor) -> Tensor:
        return flat(bound(unflat(vector, template)))

    if math.isfinite(found.contraction):
        for _ in range(3):
            z = draw.number(0.1, 4) * torch.randn(sum(blocks), dtype=torch.float64)
            J = jacobian(moved, z)
            # Branches contract in the norm of the largest.
            steepest = spectral(J)
            if len(blocks) > 1:
                steepest = max(
                    float((J @ d).split(blocks)[i].norm())
                    for d in _unit_blocks(blocks)
                    for i in range(len(blocks))
                )
            yield f"contraction, {name}", steepest, found.contraction
    if not found.unique:
        return
    first = made.solve(u)
    if not bool(first.converged.all()):
        return
    star = flat(first.state).detach()
    far = unflat(20 * torch.randn_like(star), template)
    second = made.solve(u, z0=far)
    if bool(second.converged.all()):
        apart = float((flat(second.state).detach() - star).norm())
        yield f"one equilibrium, {name}", apart, 1e-7 * (1 + float(star.norm()))
    if math.isfinite(found.lipschitz):
        T_z = jacobian(moved, star)
        T_u = jacobian(
            lambda v: flat(made.map.bind(v.view_as(u))(unflat(star, template))), u.flatten()
        )
        through = torch.linalg.solve(torch.eye(len(star), dtype=star.dtype) - T_z, T_u)
        yield f"lipschitz, {name}", spectral(through), found.lipschitz


def _unit_blocks(blocks: list[int], count: int = 20) -> Iterator[Tensor]:
    """Directions whose parts all have length 1."""
    for _ in range(count):
        parts = [torch.randn(n, dtype=torch.float64) for n in blocks]
        yield torch.cat([part / part.norm() for part in parts])


class _Residual(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        return input + super().forward(input)


def _tamper(draw: Draw, model: Any) -> str:
    """Change a part of a model, and say how."""
    how = draw.pick(
        "not", "not", "norm", "twice", "residual", "hook", "pooled", "batch norm", "forward"
    )
    if how == "norm":
        model.norm = nn.Conv2d(4, 4, 1, stride=2, bias=False)
    elif how == "twice":
        again = nn.Conv2d(4, 4, 3, padding=1)
        model.norm = nn.Sequential(again, nn.ReLU(), again)
    elif how == "residual":
        model.norm = _Residual(nn.Conv2d(4, 4, 1))
    elif how == "hook":
        model.head.register_forward_hook(lambda module, inputs, output: 3 * output)
    elif how == "pooled":
        model.norm = nn.Sequential(nn.BatchNorm2d(4), AveragePool(2))
    elif how == "batch norm":
        norm = model.norm = nn.BatchNorm2d(4)
        assert norm.running_var is not None
        norm.running_var.uniform_(0.01, 4)
    elif how == "forward":
        inner = model.head.forward
        model.head.forward = lambda x: 2 * inner(x)
    return how


def _align(model: nn.Module) -> None:
    """Weights that all stretch the same direction most, so that products of norms are reached."""
    for part in model.modules():
        if isinstance(part, WeightedOperator):
            with torch.no_grad():
                part.raw.zero_()
                places = part.raw.view(*part.raw.shape[:2], -1)
                places[0, 0, places.shape[2] // 2] = 9.0
        elif isinstance(part, nn.Conv2d):
            with torch.no_grad():
                part.weight.zero_()
                part.weight[0, 0, part.weight.shape[2] // 2, part.weight.shape[3] // 2] = 2.0


def of_model(draw: Draw) -> Iterator[Finding]:
    """Small models made to be certified, on images of any shape."""
    height, width = draw.pick((8, 8), (4, 8), (8, 4), (2, 8), (16, 8))
    options: dict[str, Any] = {"certified": True, "channels": 4, "head_norm": 5.0}
    options["head_grid"] = draw.pick(1, 2, 3)
    name = draw.pick(
        "geq_digits", "geq_digits", "opteq_digits", "opteq_single_digits", "mopteq_digits"
    )
    if name == "geq_digits":
        sides = draw.pick((8,), (8, 4))
        options |= {"middle": (4,) * len(sides), "sides": tuple(n * width // 8 for n in sides)}
        options["split"] = 2
        if height % (2 * len(sides)) or width < 8:
            return
    elif name == "mopteq_digits":
        options |= {"middle": (4, 4, 4), "diversity": draw.pick("none", "smooth")}
        if min(height, width) < 4:
            return
    else:
        options |= {"widths": (4,) if "single" in name else (4, 4), "gradient": "implicit"}
    model = opteq.create_model(name, **options)
    how = _tamper(draw, model)
    if draw.pick(0, 1, 1):
        _align(model)
    model = model.double().train(draw.pick(True, False))
    found = certificate(model, input_shape=(1, height, width))
    if not math.isfinite(found.lipschitz):
        return
    exact = precise(model)
    x = draw.number(0.5, 3) * torch.rand(1, 1, height, width, dtype=torch.float64)
    J = jacobian(lambda v: exact(v.view_as(x)).flatten(), x.flatten())
    yield f"logits, {name}, {how} changed", spectral(J), found.lipschitz


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=2000)
    parser.add_argument("--models", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(words)
    warnings.simplefilter("ignore", NotConvergedWarning)
    tries: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    best: dict[str, float] = {}
    begin = time.perf_counter()
    work = [(of_layer, i) for i in range(arguments.layers)]
    work += [(of_model, i) for i in range(arguments.models)]
    for number, (attack, i) in enumerate(work, 1):
        for what, value, allowed in attack(Draw(1_000_003 * arguments.seed + i)):
            tries[what] += 1
            best[what] = max(best.get(what, 0.0), value / allowed if allowed else 0.0)
            if not value <= allowed * ROUNDING:
                violations[what] += 1
                print(f"{attack.__name__} {i}, {what}: {value:.6g} above {allowed:.6g}", flush=True)
        if number % 250 == 0:
            spent = time.perf_counter() - begin
            print(
                f"{number:,} of {len(work):,}, {violations.total()} violations, {spent:.0f} s",
                flush=True,
            )
    print(f"{'what':48} {'tries':>7} {'violations':>10} {'best / bound':>12}")
    for what in sorted(tries):
        print(f"{what:48} {tries[what]:7,} {violations[what]:10} {best[what]:12.4f}")
    print(f"{tries.total():,} comparisons, {violations.total()} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
