"""Sums over tested images: accuracy, loss, confusion; or how well images were restored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from opteq.context import eval_mode
from opteq.data.dataset import VOID
from opteq.models.network import Network
from opteq.solve import Solution
from opteq.training.solve_sums import COUNT, SolveSums


class Sums(ABC):
    """Sums over images from which all figures follow; they add up over processes."""

    solving: SolveSums

    @property
    def failures(self) -> Counter[str]:
        """Solves that did not converge, by cause."""
        return self.solving.failures

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """The figures that follow from the sums."""

    @abstractmethod
    def numbers(self) -> Tensor:
        """The sums as one tensor, to be added up over processes."""

    @classmethod
    @abstractmethod
    def from_numbers(cls, numbers: Tensor, failures: Counter[str]) -> Self:
        """The sums of all processes; `failures` are those of this one."""


@dataclass
class Tally(Sums):
    """Classes against labels."""

    confusion: Tensor
    """(classes, classes): rows are true classes, columns predictions."""
    loss: float = 0.0
    images: int = 0
    labels: int = 0
    """Images, or pixels that count."""
    among_five: int = 0
    """Labels among the five likeliest classes."""
    solving: SolveSums = field(default_factory=SolveSums)

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
        if count > 5:
            # As many classes as likely as the true one, itself included.
            ahead = (every >= every.gather(1, true[:, None])).sum(1)
            self.among_five += int(((ahead <= 5) & known).sum())
        self.images += len(logits)
        self.labels += len(true)
        self.solving.see(solutions)

    def figures(self) -> dict[str, Any]:
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
        return found | self.solving.figures()

    def numbers(self) -> Tensor:
        row = [self.loss, self.images, self.labels, self.among_five, *self.solving.numbers()]
        return torch.cat([torch.tensor(row, dtype=torch.float64), self.confusion.flatten()])

    @classmethod
    def from_numbers(cls, numbers: Tensor, failures: Counter[str]) -> Tally:
        row, cells = numbers[: 4 + COUNT].tolist(), numbers[4 + COUNT :]
        side = round(len(cells) ** 0.5)
        return cls(
            cells.reshape(side, side),
            loss=row[0],
            images=int(row[1]),
            labels=int(row[2]),
            among_five=int(row[3]),
            solving=SolveSums.from_numbers(row[4:], failures),
        )


@dataclass
class RestorationTally(Sums):
    """Restored images against true ones."""

    psnr: float = 0.0
    ssim: float = 0.0
    noisy: float = 0.0
    """The PSNR of the measurements, where they have the size of the images."""
    loss: float = 0.0
    images: int = 0
    solving: SolveSums = field(default_factory=SolveSums)

    def see(self, restored: Tensor, truth: Tensor, y: Tensor, solutions: list[Solution]) -> None:
        """Take in a batch."""
        self.psnr += float(psnr(restored, truth).sum())
        self.ssim += float(ssim(restored, truth).sum())
        self.noisy += float(psnr(y, truth).sum()) if y.shape == truth.shape else 0.0
        self.loss += float((restored - truth).square().flatten(1).mean(1).sum())
        self.images += len(truth)
        self.solving.see(solutions)

    def figures(self) -> dict[str, Any]:
        count = max(1, self.images)
        found: dict[str, Any] = {"psnr": self.psnr / count, "ssim": self.ssim / count}
        found |= {"loss": self.loss / count, "images": self.images}
        if self.noisy:
            found["noisy_psnr"] = self.noisy / count
        return found | self.solving.figures()

    def numbers(self) -> Tensor:
        row = [self.psnr, self.ssim, self.noisy, self.loss, self.images]
        row += self.solving.numbers()
        return torch.tensor(row, dtype=torch.float64)

    @classmethod
    def from_numbers(cls, numbers: Tensor, failures: Counter[str]) -> RestorationTally:
        row = numbers.tolist()
        solving = SolveSums.from_numbers(row[5:], failures)
        return cls(*row[:4], images=int(row[4]), solving=solving)


def psnr(image: Tensor, truth: Tensor) -> Tensor:
    """The peak signal-to-noise ratio of each image in dB, pixels cut off to [0, 1]; NaN for images
    that are not finite."""
    error = (image.double().clamp(0, 1) - truth.double()).square().flatten(1).mean(1)
    return -10 * error.clamp(min=1e-12).log10()


def ssim(image: Tensor, truth: Tensor) -> Tensor:
    """The structural similarity of each image (Wang et al. 2004): means, variances and covariance
    under a Gaussian of 1.5 pixels, over all places where its 11x11 window lies inside; smaller
    images get a smaller window."""
    a, b = image.double().clamp(0, 1), truth.double()
    side = min(11, *(n - (n + 1) % 2 for n in a.shape[-2:]))
    place = torch.arange(side, dtype=a.dtype, device=a.device) - side // 2
    line = torch.exp(-place.square() / (2 * 1.5**2))
    line = line / line.sum()

    def mean(x: Tensor) -> Tensor:
        x = functional.conv2d(x.reshape(-1, 1, *x.shape[-2:]), line.view(1, 1, -1, 1))
        return functional.conv2d(x, line.view(1, 1, 1, -1))

    mean_a, mean_b = mean(a), mean(b)
    var_a, var_b = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2
    shared = mean(a * b) - mean_a * mean_b
    light = (2 * mean_a * mean_b + 0.01**2) / (mean_a**2 + mean_b**2 + 0.01**2)
    structure = (2 * shared + 0.03**2) / (var_a + var_b + 0.03**2)
    return (light * structure).reshape(len(a), -1).mean(1)


@torch.no_grad()
def tally(model: Network, batches: Iterable[tuple[Tensor, Tensor]], classes: int) -> Tally:
    """Run a model in evaluation mode over batches."""
    found = Tally.empty(classes)
    with eval_mode(model):
        for x, labels in batches:
            output = model.run(x.to(model.pixel_mean.dtype))
            found.see(output.logits, labels, output.solutions)
    return found
