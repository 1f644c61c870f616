"""Batches in an order that depends on the seed and the epoch alone, so that training can stop and
resume anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from opteq.data.dataset import ImageSet, MemoryImages, decodable
from opteq.errors import DataError, counted

Batch = tuple[Tensor, Tensor]


class Skipped:
    """Files that could not be decoded, each counted once."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def __len__(self) -> int:
        return len(self.paths)


def left_out(files: Sequence[str], shown: int = 5) -> list[str]:
    """In words, line by line: how many files could not be used, and the first of them.

    >>> left_out(["mine/cat/3.png"])
    ['1 file was left out, since it could not be decoded:', 'mine/cat/3.png']
    """
    words = ("was", "it") if len(files) == 1 else ("were", "they")
    head = (
        f"{counted(len(files), 'file')} {words[0]} left out, since {words[1]} could not be decoded:"
    )
    more = len(files) - shown
    return [head, *files[:shown], *([f"and {more:,} more"] if more > 0 else [])]


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of the images in an epoch."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(count, generator=generator)


def training_batches(
    count: int, batch_size: int, *, seed: int, epoch: int, rank: int = 0, world: int = 1
) -> list[Tensor]:
    """The indices of each batch of an epoch, for one of `world` processes that share them. All
    batches are full; leftover images wait for another epoch's order."""
    order = epoch_order(count, seed, epoch)
    batch_size = min(batch_size, count)
    share = batch_size // world
    steps = count // batch_size
    return [
        order[step * batch_size + rank * share : step * batch_size + (rank + 1) * share]
        for step in range(steps)
    ]


def evaluation_batches(
    count: int, batch_size: int, *, rank: int = 0, world: int = 1
) -> list[Tensor]:
    """Every image once, spread over the processes."""
    return list(torch.arange(rank, count, world).split(max(1, batch_size // world)))


def read_batches(
    images: ImageSet,
    batches: list[Tensor],
    *,
    device: torch.device,
    workers: int = 0,
    undecodable: Literal["stop", "skip"] = "stop",
    skipped: Skipped | None = None,
    keep_empty: bool = False,
) -> Iterator[Batch]:
    """Images in [0, 1] and labels, on the device. Images in memory are indexed; files are decoded
    by `workers` processes ahead of time. A batch in which no file can be decoded is left out, or
    comes empty if `keep_empty`."""
    if isinstance(images, MemoryImages):
        for index in batches:
            x = images.images[index].to(device, non_blocking=True)
            yield x.float() / 255, images.labels[index].to(device, non_blocking=True)
        return
    loader = DataLoader(
        _Batches(images, batches, undecodable),
        batch_size=None,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        prefetch_factor=4 if workers else None,
    )
    for x, labels, bad in loader:
        if skipped is not None:
            skipped.paths.update(bad)
        if len(x) or keep_empty:
            yield x.to(device, non_blocking=True).float() / 255, labels.to(device)


class _Batches(Dataset):
    """Whole batches as the items of a dataset, so that workers decode whole batches."""

    def __init__(
        self, images: ImageSet, batches: list[Tensor], undecodable: Literal["stop", "skip"]
    ) -> None:
        self.images, self.batches, self.undecodable = images, batches, undecodable

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor, list[str]]:
        images, labels, bad = [], [], []
        for index in self.batches[position].tolist():
            try:
                image, label = self.images.read(index)
            except DataError as error:
                if error.path is None:
                    raise
                if self.undecodable == "stop":
                    remedy = f"{error.remedy} data.undecodable=skip leaves such files out."
                    raise DataError(error.problem, remedy, error.path) from None
                bad.append(str(error.path))
                continue
            images.append(image)
            labels.append(label)
        if not images:
            return torch.empty(0), torch.empty(0), bad
        shapes = {tuple(image.shape) for image in images}
        if len(shapes) > 1:
            raise DataError(
                f"A batch has images of different sizes: {sorted(shapes)}.",
                "Set data.image_size to bring all to one size.",
            )
        return torch.stack(images), torch.stack(labels), bad


def pixel_statistics(images: ImageSet, most: int = 512) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel; for files, over `most` evenly spread ones."""
    if isinstance(images, MemoryImages):
        pixels = images.images
    else:
        chosen = torch.linspace(0, len(images) - 1, min(most, len(images))).long().unique()
        pixels = torch.stack([image for image, _ in decodable(images.subset(chosen))])
    channels = pixels.shape[1]
    # Counts of each byte are exact and need no copy of the images as floats.
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in range(channels):
        counts = torch.bincount(pixels[:, channel].reshape(-1).int(), minlength=256).double()
        weights = counts / counts.sum()
        mean = (weights * values).sum()
        means.append(mean)
        deviations.append(((weights * (values - mean).square()).sum()).sqrt())
    deviation = torch.stack(deviations)
    return torch.stack(means).float(), torch.where(deviation > 0, deviation, 1.0).float()
