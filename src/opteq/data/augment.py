"""Random changes to training images, on batches and on any device."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.data.settings import AugmentSettings
from opteq.errors import OptionError
from opteq.options import extra


class Augment(nn.Module):
    """Crop, flip and RandAugment for images in [0, 1]. Label maps of a segmentation batch move with
    their images. All randomness comes from torch's generator."""

    def __init__(self, settings: AugmentSettings, *, segmentation: bool = False) -> None:
        super().__init__()
        self.settings = settings
        self.operations: nn.Module | None = None
        if settings.rand_augment:
            if segmentation:
                raise OptionError(
                    "RandAugment would move images away from their label maps.",
                    "Set augment.rand_augment=0 for segmentation.",
                )
            self.operations = _Policies(settings.rand_augment, settings.magnitude)

    @torch.no_grad()
    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        dense = labels.ndim > 1
        if self.settings.flip:
            turned = torch.rand(len(x), device=x.device) < 0.5
            x = torch.where(turned[:, None, None, None], x.flip(-1), x)
            if dense:
                labels = torch.where(turned[:, None, None], labels.flip(-1), labels)
        if self.settings.crop:
            rows, columns = (
                torch.randint(0, 2 * self.settings.crop + 1, (len(x),), device=x.device)
                for _ in range(2)
            )
            x = _cut(x, self.settings.crop, rows, columns, 0.0)
            if dense:
                labels = _cut(labels[:, None], self.settings.crop, rows, columns, 255)[:, 0]
        if self.operations is not None:
            rgb = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
            x = self.operations(rgb)[:, : x.shape[1]].clamp(0, 1)
        return x, labels


class _Policies(nn.Module):
    """RandAugment with a policy for each image: `count` of kornia's operations without repetition,
    in random order. kornia itself draws one policy for a whole batch."""

    def __init__(self, count: int, magnitude: int) -> None:
        super().__init__()
        with extra("augment", "RandAugment"):
            from kornia.augmentation.auto import RandAugment
            from kornia.augmentation.auto.rand_augment.rand_augment import default_policy

        # kornia refuses the ends of the scale.
        inside = min(max(float(magnitude), 1e-3), 30 - 1e-3)
        self.count = count
        self.each = nn.ModuleList(
            RandAugment(n=1, m=inside, policy=[one])  # type: ignore[arg-type]
            for one in default_policy
        )

    def forward(self, x: Tensor) -> Tensor:
        chosen = torch.rand(len(x), len(self.each)).argsort(1)[:, : self.count]
        for turn in range(self.count):
            for number, operation in enumerate(self.each):
                own = (chosen[:, turn] == number).nonzero()[:, 0].to(x.device)
                if len(own):
                    x = x.index_copy(0, own, operation(x[own]).to(x.dtype))
        return x


def _cut(x: Tensor, padding: int, rows: Tensor, columns: Tensor, value: float) -> Tensor:
    """A window of the old size from each padded image, starting at its row and column."""
    height, width = x.shape[-2:]
    padded = functional.pad(x, (padding,) * 4, value=value)
    row_index = rows[:, None] + torch.arange(height, device=x.device)
    column_index = columns[:, None] + torch.arange(width, device=x.device)
    sample = torch.arange(len(x), device=x.device)[:, None, None]
    places = padded.movedim(1, -1)[sample, row_index[:, :, None], column_index[:, None, :]]
    # Back in the usual order in memory: torch 2.13 crashes in the backward pass of some narrow
    # convolutions of channels-last images, and those with one channel may count as such.
    return places.movedim(-1, 1).clone(memory_format=torch.contiguous_format)
