"""Sums over the steps of an epoch, kept on the device so that no step waits for it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opteq.models.network import Output

_FIELDS = (
    "loss",
    "score",
    "labels",
    "images",
    "steps",
    "residual",
    "measured",
    "unconverged",
    "solves",
)


def mean_residual(total: float, count: float) -> float:
    """Over the samples with a finite residual; NaN, not 0, if there are none."""
    return total / count if count else math.nan


class Meter:
    """Loss, score and how the equilibria were reached."""

    def __init__(
        self, device: torch.device, sums: list[float] | None = None, *, score_name: str
    ) -> None:
        self.score_name = score_name
        values = [0.0] * len(_FIELDS) if sums is None else sums
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self.sums = torch.tensor(values, dtype=dtype, device=device)

    @torch.no_grad()
    def see(self, loss: Tensor, output: Output, score: tuple[Tensor, Tensor]) -> None:
        """Take in a batch with its mean loss, the sum of its scores, and of how many."""
        total, count = score
        steps = residual = measured = bad = solves = torch.zeros((), device=self.sums.device)
        for solution in output.solutions:
            finite = solution.residual.isfinite()
            steps = steps + solution.steps.sum()
            residual = residual + torch.where(finite, solution.residual, 0.0).sum()
            measured = measured + finite.sum()
            bad = bad + (~solution.converged).sum()
            solves = solves + len(solution.steps)
        images = torch.full_like(steps, len(output.logits))
        row = (
            loss.detach() * count,
            total,
            count,
            images,
            steps,
            residual,
            measured,
            bad,
            solves,
        )
        self.sums += torch.stack([value.to(self.sums) for value in row])

    def figures(self) -> dict[str, float]:
        """Means so far; the one place that waits for the device."""
        values = dict(zip(_FIELDS, self.sums.tolist(), strict=True))
        labels, solves = max(values["labels"], 1.0), values["solves"]
        found = {"loss": values["loss"] / labels, self.score_name: values["score"] / labels}
        if solves:
            found |= {key: values[key] / solves for key in ("steps", "unconverged")}
            found["residual"] = mean_residual(values["residual"], values["measured"])
        return found

    @property
    def images(self) -> float:
        """Images seen."""
        return float(self.sums[_FIELDS.index("images")])
