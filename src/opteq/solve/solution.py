"""What a solve returns: a state, and for each sample a sentence on how it was reached."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.errors import NotConvergedError, NotConvergedWarning
from opteq.solve.feedback import Feedback, feedback, local_rate
from opteq.states import State, as_tuple

_INSIDE = ("opteq.", "torch.")


class Status(StrEnum):
    """Each member is its sentence: what happened, likely causes first, and what to do."""

    CONVERGED = "Converged: the residual is within the tolerance asked for."
    MAX_STEPS = (
        "Stopped at max_steps with the residual still falling: raise max_steps (or steps, for "
        "Unrolled gradients), or use Anderson, which needs fewer steps than Picard."
    )
    STALLED = (
        "The residual stopped falling above the tolerance: perhaps the map is not a contraction "
        "here (lower norm_bound, damp Picard, or use ForwardBackward, which needs only "
        "convexity), or it jumps near its fixed point, or the state tends to zero (set atol)."
    )
    PRECISION = (
        "The residual stopped falling at the rounding error of the dtype, or is not known below "
        "it: loosen tol, or solve in float32 or float64; the steeper the map, the larger it is."
    )
    DIVERGED = (
        "The iterates run away: the map is not a contraction here. Lower norm_bound below 1, or "
        "use ForwardBackward if the problem is convex (for a Gaussian kernel: norm^2 below 2.24). "
        "The best iterate is returned."
    )
    NOT_FINITE = (
        "An iterate became NaN or Inf: the map is not a contraction here, or overflows. Lower "
        "norm_bound, use ForwardBackward, or scale the input. The best finite iterate is returned."
    )
    BAD_INPUT = (
        "The map is NaN or Inf where the solve starts: look for NaN or Inf in the injection, the "
        "weights, z0 and, in a backward solve, the incoming gradient. The start is returned."
    )
    NOT_RUN = "No step was allowed (max_steps=0): the start is returned unchecked."
    INDEFINITE = (
        "The linear system is not positive definite: the state is not a strict minimum of the "
        "hidden problem. Lower norm_bound, or give the gradient rule a solver, "
        "Implicit(solver=Anderson())."
    )


CODES = tuple(Status)


def code(status: Status) -> int:
    """Index under which a status is stored in tensors."""
    return CODES.index(status)


@dataclass
class Trace:
    """What each step saw, kept with `trace=True`: row k is the k-th evaluation, NaN for samples
    that had finished."""

    residual: Tensor
    """(steps, batch): the relative residual."""
    objective: Tensor | None
    """(steps, batch): the hidden objective, if the map has one."""

    def of(self, sample: int) -> SampleTrace:
        """The steps of one sample, up to where it finished."""
        residual = self.residual[:, sample].double().cpu()
        known = ~residual.isnan()
        if self.objective is None:
            return SampleTrace(residual[known], None)
        return SampleTrace(residual[known], self.objective[:, sample].double().cpu()[known])


@dataclass(frozen=True)
class SampleTrace:
    """What each step of one sample saw, in float64 on the CPU."""

    residual: Tensor
    """(steps,)"""
    objective: Tensor | None


@dataclass
class Solution:
    """The state and, for each sample, how it was reached. A sample is either converged to the
    tolerance asked for, or its status says why not."""

    state: State
    """The best iterate of each sample."""
    converged: Tensor
    """(batch,) bool."""
    steps: Tensor
    """(batch,): evaluations of the map spent on the sample."""
    residual: Tensor
    """(batch,): |T(z) - z| / |T(z)| at the returned state; `inf` if it was never finite."""
    codes: Tensor = field(repr=False)
    """(batch,): the status of each sample as a number; `status` spells it out."""
    evaluations: int = 0
    """Calls of the map, each for all samples not yet finished."""
    trace: Trace | None = None
    map: BoundMap | None = field(default=None, repr=False)
    """The map with its injection, differentiable in both; set by `Equilibrium`."""
    adjoint: Solution | None = None
    """How the backward solve went; filled in by the backward pass of `Implicit`."""

    @property
    def status(self) -> list[Status]:
        """One sentence per sample."""
        return [CODES[index] for index in self.codes.tolist()]

    @property
    def gap(self) -> Tensor:
        """What |T(z) - z| is at most, for each sample: the residual is relative to |T(z)|, which is
        at most |z| / (1 - residual). Where G has no penalty and is strongly convex with modulus m,
        z is within gap / m of its minimiser; with a penalty within (1 + c / m) gap, c the Lipschitz
        constant of grad S."""
        parts = [part.detach().double().flatten(1) for part in as_tuple(self.state)]
        residual = self.residual.double()
        size = torch.cat(parts, 1).norm(dim=1)
        return torch.where(residual < 1, residual * size / (1 - residual), torch.inf)

    @property
    def gates(self) -> Tensor | None:
        """The gates of a Gaussian similarity at its equilibrium [GEQ]; None for other maps."""
        return None if self.map is None else self.map.gates(self.state)

    @property
    def diagnostics(self) -> dict[str, Tensor]:
        """What there is to know about the state, one number per sample under each name: its
        `feedback`, raw and rescaled; what the map says, such as GEQ's gates, or how hard MOptEq's
        diversity pushes beside heritage."""
        acting = self.feedback
        if self.map is None or acting is None:
            return {}
        own = self.map.diagnostics(self.state)
        return {"feedback": acting.raw, "feedback_rescaled": acting.rescaled, **own}

    @property
    def proved_unique(self) -> Tensor | None:
        """Whether the hidden problem is proved to have no other equilibrium, for each sample: by
        the curvature that its terms state, with the norm bounds as they are promised. Where it is
        not, a converged state is a stationary point. None where the map does not say. A term of
        your own may state what is not so: `opteq.problem.law_checks` tries it."""
        found = None if self.map is None else self.map.convex()
        if found is None:
            return None
        return torch.as_tensor(found, device=self.steps.device).expand(len(self.steps))

    @property
    def feedback(self) -> Feedback | None:
        """How far the equilibrium is from one application of its map, which costs one more; None
        if the map is not known."""
        return None if self.map is None else feedback(self.map, self.state)

    @property
    def local_rate(self) -> Tensor | None:
        """By which factor plain iteration shrinks errors near the equilibrium, for each sample: a
        dozen more applications of the map. None if the map is not known."""
        return None if self.map is None else local_rate(self.map, self.state)

    def __str__(self) -> str:
        count = len(self.converged)
        if not count:
            return "No samples."
        lines = [
            f"{int(self.converged.sum())} of {count} samples converged in "
            f"{int(self.steps.min())} to {int(self.steps.max())} steps; largest residual "
            f"{float(self.residual.max()):.2e}."
        ]
        failures = Counter(status for status in self.status if status is not Status.CONVERGED)
        lines += [f"{number} x {status}" for status, number in failures.most_common()]
        unique = self.proved_unique
        if unique is not None and not bool(unique.all()):
            lines.append("Stationary points: not proved to be the only equilibria.")
        return "\n".join(lines)


def report(solution: Solution, on_failure: str, what: str) -> None:
    """Raise for, warn about or ignore the samples that failed, as the caller chose.

    The warning has a fixed text for each cause, so that Python shows it once, not once per batch.
    """
    if on_failure == "ignore" or bool(solution.converged.all()):
        return
    failures = Counter(status for status in solution.status if status is not Status.CONVERGED)
    worst, number = failures.most_common(1)[0]
    if on_failure == "raise":
        raise NotConvergedError(
            f"{what} failed for {sum(failures.values())} of {len(solution.converged)} samples, "
            f"{number} of them for this reason:",
            worst,
            solution,
        )
    message = f"{what} failed for some samples. {worst} (Solution.status lists each sample.)"
    warnings.warn(message, NotConvergedWarning, stacklevel=_frames_to_the_caller())


def _frames_to_the_caller() -> int:
    """How far up the first frame outside of opteq and torch is: the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    return level
