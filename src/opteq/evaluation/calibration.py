"""How far probabilities can be trusted: on classes that were learnt, and on those that were not.

All figures are computed in float64 from logits, so that confidences of exactly 0 and 1 are not
special cases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from opteq.errors import ShapeError
from opteq.options import whole


@dataclass(frozen=True)
class Reliability:
    """Samples binned by the confidence in their predicted class. Bin i holds confidences in
    (i/n, (i+1)/n], the first also 0."""

    count: Tensor
    confidence: Tensor
    """Mean of each bin; 0 for empty ones."""
    accuracy: Tensor

    @property
    def error(self) -> float:
        """The expected calibration error: the mean over samples of |accuracy - confidence| of
        their bin."""
        gap = (self.accuracy - self.confidence).abs()
        return float((self.count * gap).sum() / self.count.sum())

    @property
    def largest_error(self) -> float:
        """The largest gap over bins that hold samples."""
        gap = (self.accuracy - self.confidence).abs()
        return float(gap[self.count > 0].max())


def reliability(logits: Tensor, labels: Tensor, *, bins: int = 15) -> Reliability:
    """Confidence against accuracy."""
    _check(logits, labels)
    whole("bins", bins, least=1)
    confidence, predicted = logits.double().softmax(1).max(1)
    if bool(confidence.isnan().any()):
        unknown = torch.full((bins,), math.nan, dtype=torch.float64, device=logits.device)
        return Reliability(torch.full_like(unknown, len(labels) / bins), unknown, unknown)
    right = (predicted == labels).double()
    index = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    # Rounding may put an edge on the wrong side: compare with the edges themselves.
    edges = torch.arange(1, bins + 1, dtype=torch.float64, device=logits.device) / bins
    index = torch.where(confidence > edges[index], index + 1, index).clamp(max=bins - 1)
    lower = torch.cat([edges.new_zeros(1), edges[:-1]])
    index = torch.where((confidence <= lower[index]) & (index > 0), index - 1, index)
    count, sums, hits = (
        torch.zeros(bins, dtype=torch.float64, device=logits.device).index_add_(0, index, values)
        for values in (torch.ones_like(confidence), confidence, right)
    )
    filled = count.clamp(min=1)
    return Reliability(count, sums / filled, hits / filled)


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> float:
    """Mean of -log p(label): the known KL of KerDEQ, from the one-hot label to the prediction
    [KerDEQ table 3]."""
    _check(logits, labels)
    return float(-logits.double().log_softmax(1).gather(1, labels[:, None]).mean())


def brier_score(logits: Tensor, labels: Tensor) -> float:
    """Mean over samples of |p - onehot(label)|^2, in [0, 2]."""
    _check(logits, labels)
    p = logits.double().softmax(1)
    p = p.scatter_add(1, labels[:, None], -torch.ones_like(p[:, :1]))
    return float(p.square().sum(1).mean())


def uniform_divergence(logits: Tensor) -> float:
    """Mean of KL(uniform, p): the unknown KL of KerDEQ, 0 if the model is undecided, as it should
    be about classes it never saw [KerDEQ table 3]."""
    if logits.ndim != 2 or not len(logits):
        raise ShapeError(f"Logits have shape {tuple(logits.shape)}.", "Give (samples, classes).")
    classes = logits.shape[1]
    return float((-logits.double().log_softmax(1)).mean() - math.log(classes))


def prediction_divergence(logits: Tensor) -> float:
    """Mean of KL(p, uniform) = log(classes) - entropy, the other reading of KerDEQ's unknown KL: at
    most log(classes)."""
    if logits.ndim != 2 or not len(logits):
        raise ShapeError(f"Logits have shape {tuple(logits.shape)}.", "Give (samples, classes).")
    p = logits.double().softmax(1)
    return math.log(logits.shape[1]) + float(torch.special.xlogy(p, p).sum(1).mean())


def detection_auroc(known: Tensor, unknown: Tensor) -> float:
    """How well the largest probability tells known from unknown classes: the chance that it is
    larger for a known sample than for an unknown one, ties counted half."""
    scores = [part.double().softmax(1).amax(1) for part in (known, unknown)]
    if not len(scores[0]) or not len(scores[1]):
        raise ShapeError("One of the sets is empty.", "Give samples of both kinds.")
    if any(bool(part.isnan().any()) for part in scores):
        return math.nan
    ordered = scores[1].sort().values
    below = torch.searchsorted(ordered, scores[0], right=False)
    not_above = torch.searchsorted(ordered, scores[0], right=True)
    return float((below + not_above).double().mean() / (2 * len(ordered)))


def calibration_figures(
    logits: Tensor, labels: Tensor, unseen: Tensor | None = None
) -> dict[str, float]:
    """Everything at once; `unseen` are logits of images of classes that were not learnt."""
    bins = reliability(logits, labels)
    found = {
        "calibration_error": bins.error,
        "largest_calibration_error": bins.largest_error,
        "brier": brier_score(logits, labels),
        "nll_or_known_kl": negative_log_likelihood(logits, labels),
    }
    if unseen is not None and len(unseen):
        found["unknown_kl"] = uniform_divergence(unseen)
        found["detection_auroc"] = detection_auroc(logits, unseen)
    return found


def _check(logits: Tensor, labels: Tensor) -> None:
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not len(labels):
        raise ShapeError(
            f"Logits {tuple(logits.shape)} and labels {tuple(labels.shape)} do not belong "
            "together.",
            "Give (samples, classes) and (samples,), at least one sample.",
        )
