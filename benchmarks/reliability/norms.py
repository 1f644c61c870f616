"""Norms of structured weights against a dense singular value decomposition.

    python benchmarks/reliability/norms.py [--draws 20000] [--seed 0]

Random kernels are kind to a search for a largest singular value. These are not: dead filters and
groups, derivatives, checkerboards, rank one, deltas, permutations, one entry alone, over many
orders of magnitude; every stride, group, padding and shape of image. Each draw asks three things:
that norm() is not below the norm of the matrix, for any size and for the known one, and that
weights trained with a norm bound keep it. Exits with 1 if one of them fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from opteq.operators import Conv2d, Dense, DepthwiseSeparable, LinearOperator, PatchProjection

# What is left to the rounding of the dense decomposition itself.
ROUNDING = 1e-12


class Draw:
    """Choices from one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def pick(self, *options: Any) -> Any:
        return options[int(torch.randint(len(options), (), generator=self.generator))]

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def order(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator)


def _dead_filters(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    alive = draw.pick(0, len(kernel) - 1)
    kernel[torch.arange(len(kernel)) != alive] = 0
    return kernel


def _dead_inputs(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    alive = draw.pick(0, kernel.shape[1] - 1)
    kernel[:, torch.arange(kernel.shape[1]) != alive] = 0
    return kernel


def _dead_groups(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    parts = kernel.view(groups, -1, *kernel.shape[1:])
    parts[torch.arange(groups) != draw.pick(0, groups - 1)] = 0
    return kernel


def _derivative(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    """Differences over one axis: 0 at the angle 0."""
    axis = 3 if kernel.shape[2] == 1 or (kernel.shape[3] > 1 and draw.pick(0, 1)) else 2
    return kernel - kernel.flip(axis)


def _checkerboard(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    rows, columns = (torch.arange(n) for n in kernel.shape[2:])
    board = 1.0 - 2.0 * ((rows[:, None] + columns) % 2)
    return board * (kernel[..., :1, :1] if draw.pick(0, 1) else torch.ones_like(kernel))


def _rank_one(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    out, inner, height, width = kernel.shape
    return torch.einsum(
        "o,i,h,w->oihw", *(draw.normal(n) for n in (out, inner, height, width))
    ).clone()


def _delta(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    place = tuple(draw.pick(0, n - 1) for n in kernel.shape)
    delta = torch.zeros_like(kernel)
    delta[place] = 1
    return delta


def _permutation(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    shifted = torch.zeros_like(kernel)
    for out, place in enumerate(draw.order(kernel.shape[0]).tolist()):
        row, column = draw.pick(0, kernel.shape[2] - 1), draw.pick(0, kernel.shape[3] - 1)
        shifted[out, place % kernel.shape[1], row, column] = 1
    return shifted


def _constant(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    return torch.ones_like(kernel)


def _random(draw: Draw, kernel: Tensor, groups: int) -> Tensor:
    return kernel


STRUCTURES: dict[str, Callable[[Draw, Tensor, int], Tensor]] = {
    "dead filters": _dead_filters,
    "dead inputs": _dead_inputs,
    "dead groups": _dead_groups,
    "derivative": _derivative,
    "checkerboard": _checkerboard,
    "rank one": _rank_one,
    "delta": _delta,
    "permutation": _permutation,
    "constant": _constant,
    "random": _random,
}


def true_norm(operator: LinearOperator, shape: tuple[int, ...]) -> float:
    """|W| by the matrix whose columns are the images of the basis."""
    basis = torch.eye(torch.Size(shape).numel(), dtype=torch.float64).view(-1, *shape)
    with torch.no_grad():
        matrix = operator(basis).flatten(1)
    return float(torch.linalg.matrix_norm(matrix, ord=2))


def convolution(draw: Draw) -> Iterator[tuple[str, float, float]]:
    """(what, true norm, what it may be) for one kernel."""
    groups = draw.pick(1, 1, 2, 3, 8)
    out, inner = groups * draw.pick(1, 2, max(3, 8 // groups)), draw.pick(1, 2, 3)
    taps = draw.pick(1, 2, 3, 3, 5), draw.pick(1, 2, 3, 3, 4)
    stride = draw.pick(1, 1, 2, 3), draw.pick(1, 1, 2, 4)
    circular = draw.pick(False, False, False, True) and all(n % 2 for n in taps)
    size, padding = taps, tuple(n // 2 for n in taps)
    if circular:
        size = tuple(s * draw.pick(2, 3, 4) for s in stride)
        circular = all(n >= p for n, p in zip(size, padding, strict=True))
    if not circular:
        size = tuple(n + draw.pick(0, 1, 3, 5) for n in taps)
        padding = tuple(draw.pick(0, n // 2, n - 1) for n in taps)
    name = draw.pick(*STRUCTURES)
    kernel = STRUCTURES[name](draw, draw.normal(out, inner, *taps), groups)
    if draw.pick(0, 1):
        kernel = draw.pick(_dead_filters, _dead_inputs, _dead_groups)(draw, kernel, groups)
    kernel = kernel * draw.pick(1e-12, 1e-3, 1.0, 1.0, 40.0, 1e9)
    if draw.pick(0, 0, 1):
        kernel = kernel[draw.order(out)]
    options: dict[str, Any] = {
        "stride": stride,
        "padding": padding,
        "groups": groups,
        "padding_mode": "circular" if circular else "zeros",
    }
    free = Conv2d.from_weight(kernel, **options)
    shape = (inner * groups, *size)
    true = true_norm(free, shape)
    yield f"{name}, any size", true, free.norm()
    yield f"{name}, known size", true, Conv2d.from_weight(kernel, image_size=size, **options).norm()
    known, bound = draw.pick(None, size), draw.pick(0.5, 0.95, 1.45)
    trained = Conv2d(shape[0], out, taps, norm_bound=bound, image_size=known, **options)
    trained = trained.to(draw.pick(torch.float64, torch.float32))
    trained.raw.data.copy_(kernel)
    with torch.enable_grad():  # the bound of a training step, and that of evaluation
        weights = {trained.weight.detach(), trained.requires_grad_(False).weight}
    for weight in weights:
        kept = Conv2d.from_weight(weight.double(), **options)
        yield f"{name}, norm_bound", true_norm(kept, shape), bound


def others(draw: Draw) -> Iterator[tuple[str, float, float]]:
    """Matrices, separable convolutions and patches whose weights are mostly zero."""
    dense = Dense(draw.pick(1, 4, 7), draw.pick(1, 3, 6), norm_bound=0.9).double()
    dense.raw.data.mul_(draw.normal(*dense.raw.shape) > 1).mul_(draw.pick(1e-9, 1, 1e3))
    separable = DepthwiseSeparable(3, 4, stride=draw.pick(1, 2), norm_bound=0.9).double()
    for factor in (separable.pointwise, separable.depthwise):
        factor.raw.data.mul_(draw.normal(*factor.raw.shape) > 1).mul_(draw.pick(1, 30))
    patches = PatchProjection(patch=2, split=2, hidden=draw.pick(3, 12)).double()
    patches.raw.data.mul_(draw.normal(*patches.raw.shape) > 1).mul_(draw.pick(1, 30))
    for name, operator, shape, bound in (
        ("dense", dense, (dense.raw.shape[1],), 0.9),
        ("separable", separable, (3, 6, draw.pick(4, 8)), 0.9),
        ("patches", patches, (4, 4, 6), 1.0),
    ):
        true = true_norm(operator, shape)
        yield f"{name}, norm", true, operator.norm()
        yield f"{name}, norm_bound", true, bound


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(words)
    tries: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    begin = time.perf_counter()
    for number in range(arguments.draws):
        draw = Draw(arguments.seed * 1_000_003 + number)
        for what, true, allowed in others(draw) if number % 10 == 9 else convolution(draw):
            tries[what] += 1
            if not true <= allowed * (1 + ROUNDING):
                failures[what] += 1
                print(f"draw {number}, {what}: {true:.6g} above {allowed:.6g}", flush=True)
        if (number + 1) % 1000 == 0:
            spent = time.perf_counter() - begin
            print(f"{number + 1:,} draws, {failures.total()} failures, {spent:.0f} s", flush=True)
    print(f"{'what':32} {'comparisons':>11} {'failures':>8}")
    for what in sorted(tries):
        print(f"{what:32} {tries[what]:11,} {failures[what]:8}")
    print(f"{arguments.draws:,} draws, {tries.total():,} comparisons, {failures.total()} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
