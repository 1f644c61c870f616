"""Random images of a given shape, to try a recipe without its data."""

from __future__ import annotations

import torch

from opteq.data.dataset import Data, MemoryImages


def fake_data(
    shape: tuple[int, int, int], classes: int, *, segmentation: bool = False, count: int = 64
) -> Data:
    """Noise with random labels; the same each time."""
    generator = torch.Generator().manual_seed(0)
    sets = []
    for _ in range(2):
        images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
        size = (count, *shape[1:]) if segmentation else (count,)
        labels = torch.randint(0, classes, size, generator=generator)
        sets.append(MemoryImages(images, labels))
    names = tuple(str(i) for i in range(classes))
    task = "segmentation" if segmentation else "classification"
    return Data("fake", sets[0], sets[1], names, task=task)
