"""Accuracy under common corruptions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from opteq.data.corruption import FAMILIES, KINDS, SEVERITIES, corrupted
from opteq.data.dataset import ImageSet
from opteq.data.splits import sample
from opteq.models.network import Network, is_right

Keep = Callable[[str, Callable[[], float]], float]
"""Looks a figure up by name, or computes it and remembers it."""


@dataclass(frozen=True)
class Corrupted:
    """Accuracy for each kind and severity."""

    accuracy: dict[str, list[float]]
    clean: float
    images: int

    @property
    def mean_error(self) -> float:
        """Over all kinds and severities."""
        return 1 - statistics.mean(statistics.mean(each) for each in self.accuracy.values())

    def of_family(self, family: str) -> float:
        """Mean accuracy over the kinds of a family that were tried."""
        kinds = [kind for kind in FAMILIES[family] if kind in self.accuracy]
        return statistics.mean(statistics.mean(self.accuracy[kind]) for kind in kinds)

    def figures(self) -> dict[str, float]:
        """Mean error and mean accuracy of each family."""
        families = [f for f, kinds in FAMILIES.items() if any(k in self.accuracy for k in kinds)]
        return {
            "mean_corruption_error": self.mean_error,
            **{f"{family}_accuracy": self.of_family(family) for family in families},
        }


def mean_corruption_error(found: Corrupted, baseline: Corrupted) -> float:
    """Each kind's error, summed over severities, relative to a baseline's; the mean over kinds
    (Hendrycks & Dietterich 2019)."""
    ratios = [
        sum(1 - a for a in values) / max(sum(1 - b for b in baseline.accuracy[kind]), 1e-12)
        for kind, values in found.accuracy.items()
    ]
    return statistics.mean(ratios)


def under_corruption(
    model: Network,
    images: Tensor,
    labels: Tensor,
    *,
    kinds: Sequence[str] = KINDS,
    severities: Sequence[int] = SEVERITIES,
    cache: Path | None = None,
    published: Callable[[str, int], ImageSet] | None = None,
    keep: Keep | None = None,
    progress: Callable[[int], object] | None = None,
) -> Corrupted:
    """Accuracy on uint8 images, each corrupted in every way, or on as many that are `published`
    corrupted, such as CIFAR-10-C. `keep` remembers figures from an evaluation that was stopped."""
    keep = (lambda _, compute: compute()) if keep is None else keep
    accuracy: dict[str, list[float]] = {}
    done = 0
    for kind in kinds:
        accuracy[kind] = []
        for severity in severities:

            def compute(kind: str = kind, severity: int = severity) -> float:
                if published is not None:
                    return _accuracy(model, *sample(published(kind, severity), len(images)))
                return _accuracy(model, corrupted(images, kind, severity, cache=cache), labels)

            accuracy[kind].append(keep(f"{kind}-{severity}", compute))
            done += 1
            if progress is not None:
                progress(done)
    clean = keep("clean", lambda: _accuracy(model, images, labels))
    return Corrupted(accuracy, clean, len(images))


@torch.no_grad()
def _accuracy(model: Network, images: Tensor, labels: Tensor) -> float:
    device = model.pixel_mean.device
    right = 0
    for x, y in zip(images.split(250), labels.split(250), strict=True):
        logits = model(x.to(device, model.pixel_mean.dtype) / 255)
        right += int(is_right(logits.cpu(), y).sum())
    return right / len(images)
