"""What a solve returns."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field

from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.errors import NotConvergedError, NotConvergedWarning
from opteq.solve.status import CODES, Status
from opteq.states import State

_INSIDE = ("opteq.", "torch.")


@dataclass
class Trace:
    """What each step saw, kept with `trace=True`: row k is the k-th evaluation, NaN for samples
    that had finished."""

    residual: Tensor
    """(steps, batch): the relative residual."""
    objective: Tensor | None
    """(steps, batch): the hidden objective, if the map has one."""


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
    """Calls of the map, each for all samples still in work."""
    trace: Trace | None = None
    map: BoundMap | None = field(default=None, repr=False)
    """The map with its injection, differentiable in both; set by `Equilibrium`."""
    adjoint: Solution | None = None
    """How the backward solve went; filled in by the backward pass of `Implicit`."""

    @property
    def status(self) -> list[Status]:
        """One sentence a sample."""
        return [CODES[index] for index in self.codes.tolist()]

    @property
    def gates(self) -> Tensor | None:
        """The gates of a Gaussian similarity at its equilibrium [GEQ]; None for other maps."""
        return None if self.map is None else self.map.gates(self.state)

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
        return "\n".join(lines)


def report(solution: Solution, on_failure: str, what: str) -> None:
    """Raise, warn or pass over the samples that failed, as the caller chose.

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
    message = f"{what} failed for some samples. {worst} (Solution.status has each sample.)"
    warnings.warn(message, NotConvergedWarning, stacklevel=_frames_to_the_caller())


def _frames_to_the_caller() -> int:
    """How far up the first frame outside of opteq and torch is: the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    return level
