"""Random images of a given shape, to try a recipe without its data."""

from __future__ import annotations

from dataclasses import replace

import torch

from opteq.data.dataset import Data, MemoryImages, Task
from opteq.data.settings import DataSettings


def fake_data(
    shape: tuple[int, int, int],
    classes: int,
    *,
    task: Task = "classification",
    count: int = 64,
) -> Data:
    """Noise with random labels; the same each time."""
    generator = torch.Generator().manual_seed(0)
    sets = []
    for _ in range(2):
        images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
        dense = task in ("segmentation", "seeded")
        size = (count, *shape[1:]) if dense else (count,)
        labels = torch.randint(0, max(1, classes), size, generator=generator)
        sets.append(MemoryImages(images, labels))
    names = tuple(str(i) for i in range(classes))
    kind = "segmentation" if task == "seeded" else task
    return Data("fake", sets[0], sets[1], names, task=kind)


def fake_like(settings: DataSettings, task: Task) -> Data:
    """Noise of the shape and with the classes of the dataset that `settings` name, split as they
    say: to rehearse with what is not at hand. Large images have a quarter of their sides, and
    there are fewer."""
    shape, classes = _IMAGES[settings.name]
    size = settings.pair_size()
    if size is not None:
        shape = (shape[0], *size)
    large = min(shape[1:]) >= 500
    if large:
        shape = (shape[0], shape[1] // 4, shape[2] // 4)
    count = 2 if large else 4
    classes = {"five_known": 5, "super_classes": min(classes, 20)}.get(settings.split, classes)
    data = fake_data(shape, classes, task=task, count=count)
    unseen = data.test if settings.split != "standard" else None
    return replace(data, name=settings.name, unseen=unseen)


# Channels, height and width, unless settings choose the size; and classes.
_IMAGES: dict[str, tuple[tuple[int, int, int], int]] = {
    "digits": ((1, 8, 8), 10),
    "mnist": ((1, 28, 28), 10),
    "fashion-mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "imagenette": ((3, 256, 256), 10),
    "imagenet100": ((3, 256, 256), 100),
    "imagenet": ((3, 224, 224), 1000),
    "cityscapes": ((3, 512, 1024), 19),
    "pairs": ((3, 88, 120), 11),
    "folder": ((3, 32, 32), 10),
    "mazes": ((3, 13, 13), 2),
    "bsd": ((1, 24, 28), 0),
    "photos": ((1, 24, 28), 0),
}
