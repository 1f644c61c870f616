"""Accuracy under common corruptions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache as once
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

        @once
        def found(kind: str = kind) -> list[float]:
            # All severities in one go: small sets then fill a batch.
            if published is not None:
                parts = [sample(published(kind, s), len(images)) for s in severities]
            else:
                parts = [(corrupted(images, kind, s, cache=cache), labels) for s in severities]
            return _accuracies(model, parts)

        accuracy[kind] = []
        for i, severity in enumerate(severities):
            accuracy[kind].append(keep(f"{kind}-{severity}", lambda i=i, f=found: f()[i]))
            done += 1
            if progress is not None:
                progress(done)
    clean = keep("clean", lambda: _accuracies(model, [(images, labels)])[0])
    return Corrupted(accuracy, clean, len(images))


@torch.no_grad()
def _accuracies(model: Network, parts: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The accuracy on each part."""
    device = model.pixel_mean.device
    images, labels = (torch.cat(both) for both in zip(*parts, strict=True))
    right = []
    for x, y in zip(images.split(250), labels.split(250), strict=True):
        logits = model(x.to(device, model.pixel_mean.dtype) / 255)
        right.append(is_right(logits.cpu(), y))
    sizes = [len(y) for _, y in parts]
    return [int(part.sum()) / len(part) for part in torch.cat(right).split(sizes)]
