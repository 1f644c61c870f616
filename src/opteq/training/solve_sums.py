"""Sums over solves: how the equilibria of tested images were reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from opteq.solve import Solution, Status
from opteq.training.meter import mean_residual


@dataclass
class SolveSums:
    """They add up over processes."""

    solves: int = 0
    steps: float = 0.0
    residual: float = 0.0
    measured: int = 0
    """Solves with a finite residual."""
    acting: int = 0
    """Solves whose feedback was measured: those of the first batch."""
    feedback: float = 0.0
    rescaled: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)

    def see(self, solutions: Iterable[Solution]) -> None:
        """Take in the solutions of a batch."""
        first = not self.solves
        for solution in solutions:
            found = solution.feedback if first else None
            if found is not None:
                known = found.raw.isfinite()
                self.acting += int(known.sum())
                self.feedback += float(found.raw[known].sum())
                self.rescaled += float(found.rescaled[known].sum())
            self.solves += len(solution.steps)
            self.steps += float(solution.steps.sum())
            finite = solution.residual[solution.residual.isfinite()]
            self.residual += float(finite.double().sum())
            self.measured += len(finite)
            bad = [status for status in solution.status if status is not Status.CONVERGED]
            self.failures.update(status.name.lower() for status in bad)

    def figures(self) -> dict[str, Any]:
        """The figures that follow from the sums."""
        found: dict[str, Any] = {}
        if self.solves:
            found["steps"] = self.steps / self.solves
            found["residual"] = mean_residual(self.residual, self.measured)
            found["unconverged"] = sum(self.failures.values()) / self.solves
        if self.acting:
            found["feedback"] = self.feedback / self.acting
            found["feedback_rescaled"] = self.rescaled / self.acting
        return found

    def numbers(self) -> list[float]:
        """The sums in a row, to be added up over processes."""
        bad = float(sum(self.failures.values()))
        row = [self.solves, self.steps, self.residual, self.measured, self.acting, self.feedback]
        return [*row, self.rescaled, bad]

    @classmethod
    def from_numbers(cls, row: list[float], failures: Counter[str]) -> SolveSums:
        """Sums of all processes; failures of others have no name here."""
        total = Counter(failures)
        total["elsewhere"] = int(row[7]) - sum(failures.values())
        return cls(int(row[0]), row[1], row[2], int(row[3]), int(row[4]), row[5], row[6], +total)


COUNT = 8
"""How many numbers there are."""
