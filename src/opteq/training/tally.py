"""Sums over tested images: accuracy, loss, confusion, how the equilibria were reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from opteq.context import eval_mode
from opteq.data.dataset import VOID
from opteq.models.network import Network
from opteq.solve import Solution, Status
from opteq.training.meter import mean_residual


@dataclass
class Tally:
    """Sums over images from which all figures follow; they add up over processes."""

    confusion: Tensor
    """(classes, classes): rows are true classes, columns predictions."""
    loss: float = 0.0
    images: int = 0
    labels: int = 0
    """Images, or pixels that count."""
    solves: int = 0
    steps: float = 0.0
    residual: float = 0.0
    measured: int = 0
    """Solves with a finite residual."""
    among_five: int = 0
    """Labels among the five likeliest classes."""
    acting: int = 0
    """Solves whose feedback was measured: those of the first batch."""
    feedback: float = 0.0
    rescaled: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)

    @classmethod
    def empty(cls, classes: int) -> Tally:
        return cls(torch.zeros(classes, classes, dtype=torch.float64))

    def see(self, logits: Tensor, labels: Tensor, solutions: Iterable[Solution]) -> None:
        """Take in a batch."""
        count = self.confusion.shape[0]
        every, true = logits.movedim(1, -1).reshape(-1, logits.shape[1]), labels.reshape(-1)
        known = true != VOID if labels.ndim > 1 else torch.ones_like(true, dtype=torch.bool)
        every, true = every[known].double().cpu(), true[known].cpu()
        # NaN logits predict nothing: they count as a wrong class.
        known = ~every.isnan().any(1)
        predicted = torch.where(known, every.argmax(1), (true + 1) % count)
        self.loss += float(functional.cross_entropy(every, true, reduction="sum"))
        cells = torch.bincount(true * count + predicted, minlength=count**2)
        self.confusion += cells.reshape(count, count).double()
        likeliest = every.topk(min(5, count), 1).indices
        self.among_five += int(((likeliest == true[:, None]).any(1) & known).sum())
        self.images += len(logits)
        self.labels += len(true)
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
        diagonal = self.confusion.diagonal()
        truth, guesses = self.confusion.sum(1), self.confusion.sum(0)
        union = truth + guesses - diagonal
        found: dict[str, Any] = {
            "accuracy": float(diagonal.sum() / max(1, self.labels)),
            "loss": self.loss / max(1, self.labels),
            "images": self.images,
        }
        if len(self.confusion) > 5:
            found["top5"] = self.among_five / max(1, self.labels)
        if self.labels != self.images:
            seen = union > 0
            found["mean_iou"] = float((diagonal[seen] / union[seen]).mean())
            present = truth > 0
            found["mean_accuracy"] = float((diagonal[present] / truth[present]).mean())
        if self.solves:
            found["steps"] = self.steps / self.solves
            found["residual"] = mean_residual(self.residual, self.measured)
            found["unconverged"] = sum(self.failures.values()) / self.solves
        if self.acting:
            found["feedback"] = self.feedback / self.acting
            found["feedback_rescaled"] = self.rescaled / self.acting
        return found

    def numbers(self) -> Tensor:
        """The sums as one tensor, to be added up over processes."""
        bad = float(sum(self.failures.values()))
        rest = [self.loss, self.images, self.labels, self.solves, self.steps, self.residual, bad]
        rest += [self.among_five, self.measured, self.acting, self.feedback, self.rescaled]
        return torch.cat([torch.tensor(rest, dtype=torch.float64), self.confusion.flatten()])

    @classmethod
    def from_numbers(cls, numbers: Tensor, failures: Counter[str]) -> Tally:
        rest, cells = numbers[:12].tolist(), numbers[12:]
        side = round(len(cells) ** 0.5)
        total = Counter(failures)
        total["elsewhere"] = int(rest[6]) - sum(failures.values())
        return cls(
            cells.reshape(side, side),
            rest[0],
            int(rest[1]),
            int(rest[2]),
            int(rest[3]),
            rest[4],
            rest[5],
            int(rest[8]),
            int(rest[7]),
            int(rest[9]),
            rest[10],
            rest[11],
            +total,
        )


@torch.no_grad()
def tally(model: Network, batches: Iterable[tuple[Tensor, Tensor]], classes: int) -> Tally:
    """Run a model in evaluation mode over batches."""
    found = Tally.empty(classes)
    with eval_mode(model):
        for x, labels in batches:
            output = model.run(x.to(model.pixel_mean.dtype))
            found.see(output.logits, labels, output.solutions)
    return found
