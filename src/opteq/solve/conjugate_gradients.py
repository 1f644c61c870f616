"""Conjugate gradients for a batch of symmetric positive definite systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from opteq.solve.layout import Layout
from opteq.solve.solution import Solution, Status, code


def conjugate_gradients(
    system: Callable[[Tensor], Tensor], right: Tensor, *, tol: float, max_steps: int
) -> Solution:
    """Solve system(v) = right for each sample, from v = 0, until |residual| <= tol |right|.

    `Solution.residual` is relative to `right`. A sample in which the system shows negative
    curvature stops with the status INDEFINITE and keeps its last iterate.
    """
    return solve_with_residual(system, right, tol=tol, max_steps=max_steps)[0]


@torch.no_grad()
def solve_with_residual(
    system: Callable[[Tensor], Tensor], right: Tensor, *, tol: float, max_steps: int
) -> tuple[Solution, Tensor]:
    """`conjugate_gradients`, and right - system(v) as the recurrence gives it."""
    layout = Layout(right)
    # At least float32, and scaled to size 1, so that squares neither vanish nor overflow.
    right = layout.pack(right)
    largest = right.abs().amax(1, keepdim=True) if right.numel() else right.new_ones(len(right), 1)
    unit = torch.where(largest > 0, largest, 1.0)
    residual = right / unit
    v, direction = torch.zeros_like(residual), residual.clone()
    squared = _dot(residual, residual)
    goal = tol**2 * squared
    size = squared.sqrt()
    broken = ~squared.isfinite()
    indefinite = torch.zeros_like(broken)
    steps = torch.zeros_like(squared, dtype=torch.long)
    evaluations = 0
    for evaluations in range(1, max_steps + 1):
        working = ~broken & ~indefinite & (squared > goal)
        if not bool(working.any()):
            evaluations -= 1
            break
        image = layout.pack(system(cast(Tensor, layout.unpack(direction))))
        bend = _dot(direction, image)
        broken = broken | (working & ~bend.isfinite())
        indefinite = indefinite | (working & (bend <= 0))
        moving = working & ~broken & ~indefinite
        if bool(broken.any()):
            # A product 0 * NaN would spoil the iterate of a sample that has stopped.
            image = torch.where(moving[:, None], image, 0.0)
            direction = torch.where(moving[:, None], direction, 0.0)
        length = torch.where(moving, squared / bend, 0.0)[:, None]
        v.addcmul_(length, direction)
        residual.addcmul_(length, image, value=-1)
        following = _dot(residual, residual)
        ratio = torch.where(moving, following / squared, 0.0)[:, None]
        direction.mul_(ratio).add_(residual)
        squared = torch.where(moving, following, squared)
        steps = steps + moving.long()
    converged = ~broken & ~indefinite & (squared <= goal)
    codes = torch.full_like(steps, code(Status.MAX_STEPS if max_steps else Status.NOT_RUN))
    codes = torch.where(indefinite, code(Status.INDEFINITE), codes)
    codes = torch.where(broken, code(Status.BAD_INPUT), codes)
    codes = torch.where(converged, code(Status.CONVERGED), codes)
    relative = torch.where(size > 0, squared.sqrt() / size, 0.0)
    state, left = (layout.unpack(part.mul_(unit)) for part in (v, residual))
    return Solution(state, converged, steps, relative, codes, evaluations), cast(Tensor, left)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a[:, None], b[:, :, None])[:, 0, 0]
