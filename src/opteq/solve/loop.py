"""The one loop that all solvers share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap, State, as_tuple, like
from opteq.equilibrium.dependencies import in_full_precision
from opteq.errors import OptionError
from opteq.solve.anderson import Anderson
from opteq.solve.layout import FlatMap, LastEvaluation, Layout
from opteq.solve.safeguard import looking_is_free
from opteq.solve.solution import Solution, Trace, report
from opteq.solve.solver import Solver
from opteq.solve.status import Status, code

# Finished samples are dropped from the computation once they are this part of it; before that
# they are frozen, because dropping costs a copy of the solver's memory.
_DROP = 0.25
# Steps between two looks at the device, which must wait for it. Frozen samples do not change in
# between, so the answer does not depend on this.
_LOOK_EVERY = 4
# Rounding errors above this are those of half precision.
_COARSE = 1e-4
# A residual within this factor of the tolerance is likely to be within it after one more step.
_NEAR = 100


def solve(
    T: Callable[[Any], Any],
    z0: State,
    solver: Solver | None = None,
    *,
    trace: bool = False,
    last: LastEvaluation | None = None,
) -> Solution:
    """Find z = T(z), starting at z0, for each sample of the batch.

    `T` is any function from states to states (a tensor, or a tuple of tensors, batch first), or a
    bound map, whose finished samples are dropped from the computation. Nothing is differentiated;
    `opteq.Equilibrium` does that, and keeps the graph of the `last` evaluation for it.

    >>> import torch
    >>> solution = solve(torch.cos, torch.zeros(1, 1, dtype=torch.float64), Anderson(tol=1e-12))
    >>> round(solution.state.item(), 10), solution.converged.tolist()
    (0.7390851332, [True])
    """
    solver = Anderson() if solver is None else solver
    if not callable(T):
        raise OptionError(f"The map is {T!r}.", "Give a function from states to states.")
    if not isinstance(solver, Solver):
        raise OptionError(
            f"solver is {solver!r}.", "Give Picard(), Anderson(), Broyden() or ForwardBackward()."
        )
    with torch.no_grad():
        solution = _run(T, z0, solver, trace, last)
        verify(solution, T, solver)
    report(solution, solver.on_failure, "The solve")
    return solution


@torch.no_grad()
def verify(solution: Solution, map: Callable[[Any], Any], solver: Solver) -> None:
    """In half precision a residual of 0 says that T(z) and z round to the same, not that they are
    near to the tolerance. The residual of a bound map is measured again in float32; of another
    function nothing below the rounding is known. What is not within the tolerance then has not
    converged."""
    layout = Layout(solution.state)
    if layout.precision < _COARSE or not len(solution.converged):
        return
    if isinstance(map, BoundMap):
        wide = like(solution.state, tuple(part.float() for part in as_tuple(solution.state)))
        kind = as_tuple(wide)[0].device.type
        with torch.autocast(kind, enabled=False):
            image = in_full_precision(map)(wide)
        flat, moved = (Layout(wide).pack(state) for state in (wide, image))
        size, residual, _ = measure(moved, moved - flat)
    else:
        residual = solution.residual.clamp(min=layout.precision / 2)
        size = torch.full_like(residual, math.inf)
    within = residual <= solver.tol
    if solver.atol:
        within = within | (size <= solver.atol)
    lost = solution.converged & ~within
    solution.residual = torch.where(solution.residual.isfinite(), residual, solution.residual)
    solution.converged = solution.converged & within
    solution.codes = torch.where(lost, code(Status.PRECISION), solution.codes)


class Measured(NamedTuple):
    """For each sample: the length of the gap T(z) - z, that length relative to T(z), and whether
    both are finite numbers."""

    size: Tensor
    residual: Tensor
    finite: Tensor


def measure(image: Tensor, gap: Tensor) -> Measured:
    """How far a point is from being a fixed point."""
    size = torch.linalg.vector_norm(gap, dim=1)
    scale = torch.linalg.vector_norm(image, dim=1)
    limits = torch.finfo(scale.dtype)
    usual = (scale > (limits.tiny / limits.eps) ** 0.5) & (torch.maximum(size, scale) <= limits.max)
    if looking_is_free(usual) and bool(usual.all()):
        return Measured(size, size / scale, usual)
    # Squares of very small or large entries leave the range of the dtype: scale them first.
    largest = torch.maximum(image.abs().amax(1), gap.abs().amax(1))
    unit = torch.where(largest > 0, largest, 1.0)[:, None]
    size = torch.linalg.vector_norm(gap / unit, dim=1)
    scale = torch.linalg.vector_norm(image / unit, dim=1)
    residual = torch.where(size == 0, size, size / scale)
    return Measured(size * unit[:, 0], residual, size.isfinite() & scale.isfinite())


@dataclass
class Rows:
    """What is known of the samples not yet finished; every field has one entry per sample."""

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

    def observe(
        self, z: Tensor, measured: Measured, step: int, solver: Solver, *, stop: bool = True
    ) -> None:
        """Take in one evaluation. Samples that are done are left as they are. Without `stop` the
        latest iterate is the best and no sample is done, however small its residual."""
        size, residual, finite = measured
        within = residual <= solver.tol
        if solver.atol:
            within = within | (size <= solver.atol)
        if stop and looking_is_free(z) and self._all_improve(residual, finite):
            # The rule, and no copy is made.
            self.best, self.residual = z, residual
            self.best_step = self.steps = torch.full_like(self.steps, step)
            self.first_gap = size if step == 1 else self.first_gap
            self.last_gap, self.converged = size, within
            return
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
        if step == 1:
            self.first_gap = size
        self.last_gap = torch.where(working, size, self.last_gap)
        self.steps = torch.where(working, step, self.steps)
        self.converged = self.converged | (working & finite & within)
        self.broken = self.broken | (working & ~finite)

    def _all_improve(self, residual: Tensor, finite: Tensor) -> bool:
        """Whether all samples are unfinished and closer than ever before."""
        return bool(((residual < self.residual) & finite & ~self.converged & ~self.broken).all())

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


class Observer:
    """Watches iterations that run elsewhere and says in the end what became of each sample."""

    def __init__(self, z0: State, solver: Solver, *, trace: bool) -> None:
        self.layout, self.solver = Layout(z0), solver
        flat = self.layout.pack(z0).detach()
        self.rows, self.taken = Rows.begin(flat), 0
        self.recorder = _Recorder(len(flat)) if trace else None

    @torch.no_grad()
    def see(self, z: State, image: State, map: Callable[[Any], Any], *, last: bool = False) -> None:
        """Take in an iterate and its image; the `last` one decides."""
        flat, moved = (self.layout.pack(part).detach() for part in (z, image))
        measured = measure(moved, moved - flat)
        self.taken += 1
        if self.recorder is not None:
            self.recorder.record(self.rows, FlatMap(map, self.layout), flat, measured.residual)
        self.rows.observe(flat, measured, self.taken, self.solver, stop=last)

    def solution(self, map: Callable[[Any], Any]) -> Solution:
        """What was seen."""
        found = _assemble([self.rows], self.layout, self.taken, self.recorder)
        verify(found, map, self.solver)
        return found


def _run(
    T: Callable[[Any], Any],
    z0: State,
    solver: Solver,
    trace: bool,
    last: LastEvaluation | None = None,
) -> Solution:
    layout = Layout(z0)
    z = layout.pack(z0).clone()
    recorder = _Recorder(len(z)) if trace else None
    rows, retired, taken = Rows.begin(z), [], 0
    if solver.max_steps and len(z):
        method = solver.start(FlatMap(T, layout, last))
        looks = looking_is_free(z)
        # Looking at a device every step would cost more than the graph of an evaluation.
        worst = math.inf if looks else 0.0
        for taken in range(1, solver.max_steps + 1):
            if last is not None:
                last.expected = taken == solver.max_steps or worst <= _NEAR * solver.tol
            image = method.evaluate(z)
            gap = method.gap(z, image)
            measured = measure(image, gap)
            if recorder is not None:
                recorder.record(rows, method.map, z, measured.residual)
            stop = solver.stops_early or taken == solver.max_steps
            rows.observe(z, measured, taken, solver, stop=stop)
            if last is not None and looks:
                worst = float(measured.residual.max())
            finished, length = None, measured.size
            if looks or taken % _LOOK_EVERY == 0:
                finished = int(rows.done.sum())
                if finished == len(z):
                    break
                if method.map.separable and finished >= _DROP * len(z):
                    keep = (~rows.done).nonzero()[:, 0]
                    retired.append(rows.select(rows.done.nonzero()[:, 0]))
                    rows = rows.select(keep)
                    z, image, gap, length = z[keep], image[keep], gap[keep], measured.size[keep]
                    method.select(keep)
                    finished = 0
            if taken == solver.max_steps:
                # There is no next point; and the memory of this one belongs to a gradient's graph.
                break
            following = method.update(z, image, gap, length)
            if method.extrapolates:
                following = method.map.project(following)
            z = following if finished == 0 else torch.where(rows.done[:, None], z, following)
        # The answer must not lie in memory that the next solve writes to.
        rows.best = rows.best.clone()
        method.close()
    return _assemble([*retired, rows], layout, taken, recorder)


def _assemble(
    parts: list[Rows], layout: Layout, taken: int, recorder: _Recorder | None
) -> Solution:
    rows = parts[0]
    if len(parts) > 1:
        joined = {f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Rows)}
        rows = Rows(**joined)
        rows = rows.select(rows.index.argsort())
    if taken:
        codes = rows.codes(taken, layout.precision)
    else:
        codes = torch.full_like(rows.steps, code(Status.NOT_RUN))
    return Solution(
        state=layout.unpack(rows.best),
        converged=rows.converged,
        steps=rows.steps,
        residual=rows.residual,
        codes=codes,
        evaluations=taken,
        trace=None if recorder is None else recorder.trace(),
    )
