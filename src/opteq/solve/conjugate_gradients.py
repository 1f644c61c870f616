"""Conjugate gradients for a batch of symmetric positive definite systems."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opteq.problem.similarity import expand, per_sample_sum
from opteq.solve.solution import Solution
from opteq.solve.status import Status, code


@torch.no_grad()
def conjugate_gradients(
    system: Callable[[Tensor], Tensor], right: Tensor, *, tol: float, max_steps: int
) -> Solution:
    """Solve system(v) = right for each sample, from v = 0, until |residual| <= tol |right|.

    `Solution.residual` is relative to `right`. A sample in which the system shows negative
    curvature stops with the status INDEFINITE and keeps its last iterate.
    """
    given = right.dtype
    # At least float32, and of size 1, so that squares neither vanish nor overflow.
    work = torch.promote_types(right.dtype, torch.float32)
    largest = right.flatten(1).abs().amax(1) if right.numel() else right.new_ones(len(right))
    unit = expand(torch.where(largest > 0, largest, 1.0).to(work), right)
    right = right.to(work) / unit
    v, residual, direction = torch.zeros_like(right), right, right
    squared = per_sample_sum(residual.square())
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
        image = system(direction.to(given)).to(work)
        bend = per_sample_sum(direction * image)
        broken = broken | (working & ~bend.isfinite())
        indefinite = indefinite | (working & (bend <= 0))
        moving = working & ~broken & ~indefinite
        length = expand(torch.where(moving, squared / bend, 0.0), v)
        # A product 0 * NaN would spoil the iterate of a sample that has stopped.
        held = expand(moving, v)
        v = torch.where(held, v + length * direction, v)
        residual = torch.where(held, residual - length * image, residual)
        following = per_sample_sum(residual.square())
        ratio = torch.where(moving, following / squared, 0.0)
        direction = torch.where(held, residual + expand(ratio, v) * direction, direction)
        squared = torch.where(moving, following, squared)
        steps = steps + moving.long()
    converged = ~broken & ~indefinite & (squared <= goal)
    codes = torch.full_like(steps, code(Status.MAX_STEPS if max_steps else Status.NOT_RUN))
    codes = torch.where(indefinite, code(Status.INDEFINITE), codes)
    codes = torch.where(broken, code(Status.BAD_INPUT), codes)
    codes = torch.where(converged, code(Status.CONVERGED), codes)
    relative = torch.where(size > 0, squared.sqrt() / size, 0.0)
    v = (v * unit).to(given)
    return Solution(v, converged, steps, relative, codes, evaluations=evaluations)
