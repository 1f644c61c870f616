"""The one loop that all solvers share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.equilibrium.dependencies import in_full_precision
from opteq.errors import OptionError
from opteq.problem.curvature import largest
from opteq.solve.anderson import Anderson
from opteq.solve.compiled import CompiledSteps
from opteq.solve.layout import FlatMap, LastEvaluation, Layout
from opteq.solve.progress import SampleProgress, measure
from opteq.solve.solution import Solution, Status, Trace, code, report
from opteq.solve.solver import Solver
from opteq.states import State, as_tuple, like, looking_is_free

# Finished samples are dropped from the computation once they are this fraction of it, and if the
# steps that are left would spend an evaluation on them; before that they are frozen, because
# dropping costs a copy of the solver's memory.
_DROP = 0.25
# Steps between two looks at the device, which must wait for it. Frozen samples do not change in
# between, so the answer does not depend on this.
_LOOK_EVERY = 4
# Rounding errors above this are those of half precision.
_COARSE = 1e-4
# A residual of which rounding makes this part is one of rounding: errors of all steps add up.
_SHARE = 0.1
# Evaluations after which two more, to find out, are a small part.
_PATIENT = 20
# A residual within this factor of the tolerance is likely to be within it after one more step.
_NEAR = 100


def solve(
    T: Callable[[Any], Any],
    z0: State,
    solver: Solver | None = None,
    *,
    trace: bool = False,
    last: LastEvaluation | None = None,
    steps: CompiledSteps | None = None,
) -> Solution:
    """Find z = T(z), starting at z0, for each sample of the batch.

    `T` is any function from states to states (a tensor, or a tuple of tensors, batch first), or a
    bound map, whose finished samples are dropped from the computation. Nothing is differentiated;
    `opteq.Equilibrium` does that, and keeps the graph of the `last` evaluation for it. Compiled
    `steps` of a bound map are taken where the solver has them and no `trace` is wanted; they keep
    no graph, and finished samples stay in the computation.

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
    layout = Layout(z0)
    with torch.no_grad():
        found = None
        if steps is not None and not trace and isinstance(T, BoundMap):
            found = steps.solve(T, layout.pack(z0), layout, solver)
        if found is not None:
            solution = _assemble([found[0]], T, layout, found[1], None)
        else:
            solution = _run(T, z0, layout, solver, trace, last)
        _verify(solution, T, layout, solver)
        _blame_rounding(solution, T)
    report(solution, solver.on_failure, "The solve")
    return solution


@torch.no_grad()
def _verify(solution: Solution, map: Callable[[Any], Any], layout: Layout, solver: Solver) -> None:
    """Check convergence again in half precision, where a residual of 0 says that T(z) and z round
    to the same, not that they agree to the tolerance. The residual of a bound map is measured again
    in float32; for another function nothing below the rounding is known. Samples not within the
    tolerance then have not converged."""
    if layout.precision < _COARSE or not len(solution.converged):
        return
    if isinstance(map, BoundMap):
        wide = like(solution.state, tuple(part.float() for part in as_tuple(solution.state)))
        kind = as_tuple(wide)[0].device.type
        with torch.autocast(kind, enabled=False):
            image = in_full_precision(map)(wide)
        flat, moved = (Layout(wide).pack(state) for state in (wide, image))
        size, residual, *_ = measure(moved, moved - flat)
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


def _blame_rounding(solution: Solution, map: Callable[[Any], Any]) -> None:
    """Say so where a residual stays up because the numbers are too coarse for so steep a map: where
    rounding the state once more moves T(z) - z by as much as is left of it."""
    if solution.evaluations < _PATIENT:
        return
    suspects = (Status.STALLED, Status.DIVERGED, Status.MAX_STEPS)
    failed = torch.isin(solution.codes, solution.codes.new_tensor([code(s) for s in suspects]))
    if not bool(failed.any()):
        return
    layout = Layout(solution.state)
    z = layout.pack(solution.state)
    gap = layout.pack(map(solution.state)) - z
    signs = 1 - 2 * (torch.arange(z.shape[1], device=z.device) % 2)
    near = z * (1 + torch.finfo(z.dtype).eps * signs)
    moved = layout.pack(map(layout.unpack(near))) - near - gap
    coarse = failed & (moved.norm(dim=1) >= _SHARE * gap.norm(dim=1))
    solution.codes = torch.where(coarse, code(Status.PRECISION), solution.codes)


class _Recorder:
    """Keeps the residual, and the objective if there is one, of every step."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.residuals: list[Tensor] = []
        self.objectives: list[Tensor] = []

    def record(self, progress: SampleProgress, map: FlatMap, z: Tensor, residual: Tensor) -> None:
        self.residuals.append(self._spread(progress, residual))
        objective = map.objective(z)
        if objective is not None:
            self.objectives.append(self._spread(progress, objective))

    def _spread(self, progress: SampleProgress, values: Tensor) -> Tensor:
        row = values.new_full((self.batch,), math.nan)
        row[progress.index] = torch.where(progress.done, math.nan, values)
        return row

    def trace(self) -> Trace:
        stacked = [torch.stack(x) if x else None for x in (self.residuals, self.objectives)]
        residual = stacked[0] if stacked[0] is not None else torch.empty(0, self.batch)
        return Trace(residual, stacked[1])


class Observer:
    """Watches iterations that run elsewhere and says at the end what became of each sample."""

    def __init__(self, z0: State, solver: Solver, *, trace: bool) -> None:
        self.layout, self.solver = Layout(z0), solver
        flat = self.layout.pack(z0).detach()
        self.progress, self.taken = SampleProgress.begin(flat), 0
        self.recorder = _Recorder(len(flat)) if trace else None

    @torch.no_grad()
    def see(self, z: State, image: State, map: Callable[[Any], Any], *, last: bool = False) -> None:
        """Take in an iterate and its image; the `last` one decides."""
        flat, moved = (self.layout.pack(part).detach() for part in (z, image))
        measured = measure(moved, moved - flat)
        self.taken += 1
        if self.recorder is not None:
            self.recorder.record(self.progress, FlatMap(map, self.layout), flat, measured.residual)
        self.progress.observe(flat, measured, self.taken, self.solver, stop=last)

    def solution(self, map: Callable[[Any], Any]) -> Solution:
        """The outcome of the iterations seen."""
        found = _assemble([self.progress], map, self.layout, self.taken, self.recorder)
        _verify(found, map, self.layout, self.solver)
        return found


def _run(
    T: Callable[[Any], Any],
    z0: State,
    layout: Layout,
    solver: Solver,
    trace: bool,
    last: LastEvaluation | None,
) -> Solution:
    z = layout.pack(z0).clone()
    recorder = _Recorder(len(z)) if trace else None
    progress, retired, taken = SampleProgress.begin(z), [], 0
    if solver.max_steps and len(z):
        method = solver.method(FlatMap(T, layout, last))
        looks = looking_is_free(z)
        # Looking at a device every step would cost more than the graph of an evaluation.
        worst = math.inf if looks else 0.0
        before = math.inf
        for taken in range(1, solver.max_steps + 1):
            if last is not None:
                last.expected = taken == solver.max_steps or worst <= _NEAR * solver.tol
            image = method.evaluate(z)
            gap = method.gap(z, image)
            measured = measure(image, gap)
            if recorder is not None:
                recorder.record(progress, method.map, z, measured.residual)
            stop = solver.stops_early or taken == solver.max_steps
            progress.observe(z, measured, taken, solver, stop=stop)
            if looks:
                before = worst
                worst = math.inf if measured.ends is None else measured.ends[1]
            finished, length = progress.finished, measured.size
            if finished is None and taken % _LOOK_EVERY == 0:
                finished = int(progress.done.sum())
            if finished:
                if finished == len(z):
                    break
                share = finished / len(z)
                left = _steps_left(worst, before, solver.tol)
                if method.map.separable and share >= _DROP and share * left >= 1:
                    keep, progress, ready = progress.unfinished()
                    retired.append(ready)
                    z, image, gap, length = z[keep], image[keep], gap[keep], measured.size[keep]
                    method.select(keep)
                    finished = 0
            if taken == solver.max_steps:
                # There is no next point; and the memory of this one belongs to a gradient's graph.
                break
            following = method.update(z, image, gap, length)
            if method.extrapolates:
                following = method.map.project(following)
            z = following if finished == 0 else torch.where(progress.done[:, None], z, following)
        # The answer must not lie in memory that the next solve writes to.
        progress.best = progress.best.clone()
        method.close()
    return _assemble([*retired, progress], T, layout, taken, recorder)


def _steps_left(worst: float, before: float, tol: float) -> float:
    """How many more steps the slowest sample needs at the pace of the last one."""
    if not (0 < tol < worst < before < math.inf):
        return math.inf
    return math.log(worst / tol) / math.log(before / worst)


def _assemble(
    parts: list[SampleProgress],
    map: Callable[[Any], Any],
    layout: Layout,
    taken: int,
    recorder: _Recorder | None,
) -> Solution:
    progress = SampleProgress.joined(parts)
    if taken and progress.have_all_converged():
        codes = torch.full_like(progress.steps, code(Status.CONVERGED))
    elif taken:
        codes = progress.codes(taken, layout.precision)
    else:
        codes = torch.full_like(progress.steps, code(Status.NOT_RUN))
    if taken > 1:
        grew = progress.only_grew(layout.precision)
        if bool(grew.any()) and largest(FlatMap(map, layout).contraction()) >= 1:
            progress.converged = progress.converged & ~grew
            codes = torch.where(grew, code(Status.DIVERGED), codes)
    return Solution(
        state=layout.unpack(progress.best),
        converged=progress.converged,
        steps=progress.steps,
        residual=progress.residual,
        codes=codes,
        evaluations=taken,
        trace=None if recorder is None else recorder.trace(),
    )
