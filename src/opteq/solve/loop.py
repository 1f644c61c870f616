"""The one loop that all solvers share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opteq.equilibrium.base import State
from opteq.errors import OptionError
from opteq.solve.anderson import Anderson
from opteq.solve.layout import FlatMap, Layout
from opteq.solve.solution import Solution, Trace, report
from opteq.solve.solver import Solver
from opteq.solve.status import Status, code

# Finished samples are dropped from the computation once they are this part of it; before that
# they are frozen, because dropping costs a copy of the solver's memory.
_DROP = 0.25
# Steps between two looks at the device, which must wait for it. Frozen samples do not change in
# between, so the answer does not depend on this.
_LOOK_EVERY = 4


def solve(
    T: Callable[[Any], Any], z0: State, solver: Solver | None = None, *, trace: bool = False
) -> Solution:
    """Find z = T(z), starting at z0, for each sample of the batch.

    `T` is any function from states to states (a tensor, or a tuple of tensors, batch first), or a
    bound map, whose finished samples are dropped from the computation. Nothing is differentiated;
    `opteq.Equilibrium` does that.

    >>> import torch
    >>> solution = solve(torch.cos, torch.zeros(1, 1, dtype=torch.float64), Anderson(tol=1e-12))
    >>> round(solution.state.item(), 10), solution.converged.tolist()
    (0.7390851332, [True])
    """
    solver = Anderson() if solver is None else solver
    if not isinstance(solver, Solver):
        raise OptionError(
            f"solver is {solver!r}.", "Give Picard(), Anderson(), Broyden() or ForwardBackward()."
        )
    with torch.no_grad():
        solution = _run(T, z0, solver, trace)
    report(solution, solver.on_failure, "The solve", stacklevel=3)
    return solution


def _looks_each_step(z: Tensor) -> bool:
    """Whether looking at a result is free, or must wait for the device."""
    return z.device.type == "cpu"


def judge(T: Callable[[Any], Any], state: State, solver: Solver, steps: int) -> Solution:
    """The Solution of a state that was reached in `steps` steps by other means: one evaluation
    says whether it is an equilibrium."""
    layout = Layout(state)
    with torch.no_grad():
        z = layout.pack(state)
        rows = Rows.begin(z)
        if len(z):
            image = FlatMap(T, layout)(z)
            rows.observe(z, measure(image, image - z), steps, solver)
        return _assemble([rows], layout, steps, None)


class Measured(NamedTuple):
    """Length of the gap T(z) - z, length of T(z), and their ratio, for each sample."""

    size: Tensor
    scale: Tensor
    residual: Tensor


def measure(image: Tensor, gap: Tensor) -> Measured:
    """How far a point is from being a fixed point."""
    size = torch.linalg.vector_norm(gap, dim=1)
    scale = torch.linalg.vector_norm(image, dim=1)
    return Measured(size, scale, torch.where(size == 0, size, size / scale))


@dataclass
class Rows:
    """What is known of the samples in work; every field has one entry a sample."""

    index: Tensor
    best: Tensor
    residual: Tensor
    best_step: Tensor
    first_gap: Tensor
    last_gap: Tensor
    steps: Tensor
    converged: Tensor
    broken: Tensor

    @classmethod
    def begin(cls, z: Tensor) -> Rows:
        batch, device = len(z), z.device
        unknown = torch.full((batch,), math.inf, dtype=z.dtype, device=device)
        zero = torch.zeros(batch, dtype=torch.long, device=device)
        no = torch.zeros(batch, dtype=torch.bool, device=device)
        index = torch.arange(batch, device=device)
        return cls(index, z, unknown, zero, unknown, unknown, zero, no, no)

    @property
    def done(self) -> Tensor:
        return self.converged | self.broken

    def select(self, index: Tensor) -> Rows:
        return Rows(*(getattr(self, f.name)[index] for f in fields(self)))

    def observe(self, z: Tensor, measured: Measured, step: int, solver: Solver) -> None:
        """Take in one evaluation. Samples that are done are left as they are."""
        size, scale, residual = measured
        working = ~self.done
        finite = size.isfinite() & scale.isfinite()
        within = size <= (solver.tol * scale).clamp(min=solver.atol)
        if not solver.stops_early:
            # Such a solver looks for more than a small residual: its last iterate is its best.
            last = step == solver.max_steps
            better, within = working & finite, within & last
        else:
            # With an absolute tolerance the iterate that ends the solve need not be the best one
            # relative to its size.
            better = working & finite & (within | (residual < self.residual))
        # No copy while every sample improves, which is the rule.
        if _looks_each_step(z) and bool(better.all()):
            self.best, self.residual = z, residual
            self.best_step = torch.full_like(self.best_step, step)
        else:
            self.best = torch.where(better[:, None], z, self.best)
            self.residual = torch.where(better, residual, self.residual)
            self.best_step = torch.where(better, step, self.best_step)
        if step == 1:
            self.first_gap = size
        self.last_gap = torch.where(working, size, self.last_gap)
        self.steps = torch.where(working, step, self.steps)
        self.converged = self.converged | (working & finite & within)
        self.broken = self.broken | (working & ~finite)

    def codes(self, taken: int) -> Tensor:
        """The status of each sample after `taken` steps."""
        eps = torch.finfo(self.best.dtype).eps
        never = self.broken & self.residual.isinf()
        quiet = (taken - self.best_step) > max(5, taken // 4)
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


class _Recorder:
    """Keeps the residual, and the objective if there is one, of every step."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.residuals: list[Tensor] = []
        self.objectives: list[Tensor] = []

    def record(self, rows: Rows, map: FlatMap, z: Tensor, residual: Tensor) -> None:
        self.residuals.append(self._spread(rows, residual))
        objective = map.objective(z)
        if objective is not None:
            self.objectives.append(self._spread(rows, objective))

    def _spread(self, rows: Rows, values: Tensor) -> Tensor:
        row = values.new_full((self.batch,), math.nan)
        row[rows.index] = torch.where(rows.done, math.nan, values)
        return row

    def trace(self) -> Trace:
        stacked = [torch.stack(x) if x else None for x in (self.residuals, self.objectives)]
        residual = stacked[0] if stacked[0] is not None else torch.empty(0, self.batch)
        return Trace(residual, stacked[1])


def _run(T: Callable[[Any], Any], z0: State, solver: Solver, trace: bool) -> Solution:
    layout = Layout(z0)
    z = layout.pack(z0)
    recorder = _Recorder(len(z)) if trace else None
    rows, retired, taken = Rows.begin(z), [], 0
    if solver.max_steps and len(z):
        method = solver.start(FlatMap(T, layout))
        looks = _looks_each_step(z)
        for taken in range(1, solver.max_steps + 1):
            image = method.evaluate(z)
            gap = image - z
            measured = measure(image, gap)
            if recorder is not None:
                recorder.record(rows, method.map, z, measured.residual)
            rows.observe(z, measured, taken, solver)
            finished = None
            if looks or taken % _LOOK_EVERY == 0:
                finished = int(rows.done.sum())
                if finished == len(z):
                    break
                if method.map.separable and finished >= _DROP * len(z):
                    keep = (~rows.done).nonzero()[:, 0]
                    retired.append(rows.select(rows.done.nonzero()[:, 0]))
                    rows = rows.select(keep)
                    z, image, gap = z[keep], image[keep], gap[keep]
                    method.select(keep)
                    finished = 0
            following = method.update(z, image, gap)
            if method.extrapolates:
                following = method.map.project(following)
            z = following if finished == 0 else torch.where(rows.done[:, None], z, following)
    return _assemble([*retired, rows], layout, taken, recorder)


def _assemble(
    parts: list[Rows], layout: Layout, taken: int, recorder: _Recorder | None
) -> Solution:
    rows = parts[0]
    if len(parts) > 1:
        joined = {f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Rows)}
        rows = Rows(**joined)
        rows = rows.select(rows.index.argsort())
    codes = rows.codes(taken) if taken else torch.full_like(rows.steps, code(Status.NOT_RUN))
    return Solution(
        state=layout.unpack(rows.best),
        converged=rows.converged,
        steps=rows.steps,
        residual=rows.residual,
        codes=codes,
        evaluations=taken,
        trace=None if recorder is None else recorder.trace(),
    )
