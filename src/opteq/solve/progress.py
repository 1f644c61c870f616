"""How far each sample has come: its residual, its best iterate, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from opteq.solve.solution import Status, code
from opteq.solve.solver import Solver
from opteq.states import looking_is_free


class Residuals(NamedTuple):
    """For each sample: the length of the gap T(z) - z, that length relative to T(z), and whether
    both are finite numbers."""

    size: Tensor
    residual: Tensor
    finite: Tensor | None
    """None if all are."""
    ends: tuple[float, float] | None = None
    """The smallest and the largest residual, where looking is free and all are finite."""


def measure(image: Tensor, gap: Tensor) -> Residuals:
    """How far a point is from being a fixed point."""
    size = torch.linalg.vector_norm(gap, dim=1)
    scale = torch.linalg.vector_norm(image, dim=1)
    if looking_is_free(scale) and len(scale):
        # The usual case, by as few calls as possible: a step on a small map is made of them.
        limits = torch.finfo(scale.dtype)
        low, high = torch.aminmax(scale)
        residual = size / scale
        best, worst = (float(end) for end in torch.aminmax(residual))
        if float(low) > (limits.tiny / limits.eps) ** 0.5 and float(high) + worst < math.inf:
            return Residuals(size, residual, None, (best, worst))
    # Squares of very small or large entries leave the range of the dtype: scale them first.
    largest = torch.maximum(image.abs().amax(1), gap.abs().amax(1))
    unit = torch.where(largest > 0, largest, 1.0)[:, None]
    size = torch.linalg.vector_norm(gap / unit, dim=1)
    scale = torch.linalg.vector_norm(image / unit, dim=1)
    residual = torch.where(size == 0, size, size / scale)
    return Residuals(size * unit[:, 0], residual, size.isfinite() & scale.isfinite())


_OF_ALL = ("finished", "all_converged")
_CHANGING = (
    "best",
    "residual",
    "best_step",
    "first_gap",
    "first_residual",
    "last_gap",
    "largest_gap",
    "steps",
    "converged",
    "broken",
)
# A state that has grown this many times, while its gap has not shrunk, has run away.
_GROWN = 100


def _within(size: Tensor, residual: Tensor, solver: Solver) -> Tensor:
    """Which samples are within one of the tolerances."""
    within = residual <= solver.tol
    return within | (size <= solver.atol) if solver.atol else within


@dataclass(kw_only=True)
class SampleProgress:
    """What is known about the samples not yet finished; every field has one entry per sample."""

    index: Tensor
    best: Tensor
    residual: Tensor
    best_step: Tensor
    first_gap: Tensor
    first_residual: Tensor
    last_gap: Tensor
    largest_gap: Tensor
    steps: Tensor
    converged: Tensor
    broken: Tensor
    finished: int | None = None
    """How many are done, where looking is free."""
    all_converged: bool = False
    """Whether it is known, without looking, that all have converged."""

    @classmethod
    def begin(cls, z: Tensor) -> SampleProgress:
        batch, device = len(z), z.device
        unknown = torch.full((batch,), math.inf, dtype=z.dtype, device=device)
        zero = torch.zeros(batch, dtype=torch.long, device=device)
        no = torch.zeros(batch, dtype=torch.bool, device=device)
        index = torch.arange(batch, device=device)
        return cls(
            index=index,
            best=z,
            residual=unknown,
            best_step=zero,
            first_gap=unknown,
            first_residual=unknown,
            last_gap=unknown,
            largest_gap=torch.zeros_like(unknown),
            steps=zero,
            converged=no,
            broken=no,
            finished=0 if looking_is_free(z) else None,
        )

    @classmethod
    def joined(cls, parts: list[SampleProgress]) -> SampleProgress:
        """The progress of all samples, in order, from parts that cover some of them."""
        if len(parts) == 1:
            return parts[0]
        order = torch.cat([p.index for p in parts]).argsort()
        return cls._of_samples(lambda name: torch.cat([getattr(p, name) for p in parts])[order])

    @classmethod
    def _of_samples(cls, value: Callable[[str], Tensor]) -> SampleProgress:
        names = (field.name for field in fields(cls) if field.name not in _OF_ALL)
        return cls(**cast(dict[str, Any], {name: value(name) for name in names}))

    def have_all_converged(self) -> bool:
        """Whether all samples have, as far as that is known without waiting."""
        if not self.all_converged and looking_is_free(self.converged):
            self.all_converged = bool(self.converged.all())
        return self.all_converged

    def tensors(self) -> tuple[Tensor, ...]:
        """What changes from step to step."""
        return tuple(getattr(self, name) for name in _CHANGING)

    def holding(self, tensors: tuple[Tensor, ...]) -> SampleProgress:
        """The progress of the same samples with other such `tensors`."""
        return replace(self, **dict(zip(_CHANGING, tensors, strict=True)), finished=None)

    @property
    def done(self) -> Tensor:
        return self.converged | self.broken

    def unfinished(self) -> tuple[Tensor, SampleProgress, SampleProgress]:
        """Where the samples that go on are, what is known of them, and of those that are done."""
        done = self.done
        keep = (~done).nonzero()[:, 0]
        rest = self.select(keep)
        rest.finished = 0
        return keep, rest, self.select(done.nonzero()[:, 0])

    def select(self, index: Tensor) -> SampleProgress:
        return self._of_samples(lambda name: getattr(self, name)[index])

    def observe(
        self,
        z: Tensor,
        measured: Residuals,
        step: int | Tensor,
        solver: Solver,
        *,
        stop: bool = True,
    ) -> None:
        """Take in one evaluation. Samples that are done are left as they are. Without `stop` the
        latest iterate is the best and no sample is done, however small its residual."""
        size, residual, finite, ends = measured
        if stop and self.finished == 0 and ends is not None and self._all_improve(residual):
            # The usual case, in which no copy is made.
            self.best, self.residual = z, residual
            if step == 1:
                self.first_gap, self.first_residual = size, residual
            self.best_step = self.steps = torch.full_like(self.steps, int(step))
            self.last_gap, self.largest_gap = size, torch.maximum(self.largest_gap, size)
            if ends[0] > solver.tol and not solver.atol:
                return
            self.converged = _within(size, residual, solver)
            self.all_converged = ends[1] <= solver.tol
            self.finished = len(z) if self.all_converged else int(self.converged.sum())
            return
        within = _within(size, residual, solver)
        finite = torch.ones_like(within) if finite is None else finite
        working = ~self.done
        if not stop:
            better, within = working & finite, torch.zeros_like(within)
        else:
            # With an absolute tolerance the iterate that ends the solve need not be the best one
            # relative to its size.
            better = working & finite & (within | (residual < self.residual))
        self.best = torch.where(better[:, None], z, self.best)
        self.residual = torch.where(better, residual, self.residual)
        self.best_step = torch.where(better, step, self.best_step)
        self.first_gap = torch.where(self.steps == 0, size, self.first_gap)
        self.first_residual = torch.where(self.steps == 0, residual, self.first_residual)
        self.last_gap = torch.where(working, size, self.last_gap)
        self.largest_gap = torch.maximum(self.largest_gap, self.last_gap)
        self.steps = torch.where(working, step, self.steps)
        self.converged = self.converged | (working & finite & within)
        self.broken = self.broken | (working & ~finite)
        if looking_is_free(z):
            self.finished = int(self.done.sum())

    def _all_improve(self, residual: Tensor) -> bool:
        """Whether all samples are closer than ever before."""
        return bool((residual < self.residual).all())

    def only_grew(self, eps: float) -> Tensor:
        """Which samples seem to have converged because they grew: where T has no fixed point its
        gap stays, and is a small part of a state that is large enough, or lost in its rounding
        error `eps`. It proves nothing against a map that is known to contract."""
        suspects = (self.last_gap >= self.largest_gap / 2) | (self.residual <= 2 * eps)
        suspects = suspects & self.converged
        if not bool(suspects.any()):
            return suspects
        unit = self.best.abs().amax(1).clamp(min=torch.finfo(self.best.dtype).tiny)
        reach = unit * torch.linalg.vector_norm(self.best / unit[:, None], dim=1)
        gap = torch.maximum(self.last_gap, eps * reach)
        grown = reach * self.first_residual > _GROWN * self.first_gap
        return suspects & (gap >= self.largest_gap / 2) & grown

    def codes(self, taken: int, eps: float) -> Tensor:
        """The status of each sample after `taken` steps of a map with rounding error `eps`."""
        never = self.broken & self.residual.isinf()
        quiet = (taken - self.best_step) > max(1, taken // 4)
        ran_away = ~(self.last_gap <= 10 * self.first_gap)
        rounding = (self.residual < 50 * eps) | (quiet & (self.residual < 1e3 * eps))
        rules = (
            (self.converged, Status.CONVERGED),
            (never, Status.BAD_INPUT),
            (self.broken, Status.NOT_FINITE),
            (ran_away, Status.DIVERGED),
            (rounding, Status.PRECISION),
            (quiet, Status.STALLED),
        )
        codes = torch.full_like(self.steps, code(Status.MAX_STEPS))
        for holds, status in reversed(rules):
            codes = torch.where(holds, code(status), codes)
        return codes
