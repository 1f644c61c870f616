"""Data from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opteq.data.dataset import Data, MemoryImages, check_labels
from opteq.errors import DataError

Arrays = tuple[Any, Any]


def memory_data(
    train: Arrays, test: Arrays, *, classes: Sequence[str] | None = None, name: str = "arrays"
) -> Data:
    """Data from pairs (images, labels) of arrays or tensors. Images are bytes, or numbers in
    [0, 1], of shape (n, channels, height, width), (n, height, width, 3) or (n, height, width);
    labels are whole numbers from 0, one per image, or one per pixel for segmentation.

    >>> import numpy as np
    >>> x, y = np.random.rand(12, 8, 8), np.arange(12) % 3
    >>> data = memory_data(train=(x[:9], y[:9]), test=(x[9:], y[9:]))
    >>> data.shape, data.classes
    ((1, 8, 8), ('0', '1', '2'))
    """
    sets = [_images(pair, f"{name}, {part}") for pair, part in ((train, "train"), (test, "test"))]
    if sets[0].images.shape[1:] != sets[1].images.shape[1:]:
        shapes = [tuple(part.images.shape[1:]) for part in sets]
        raise DataError(
            f"{name}: training images have shape {shapes[0]}, test images {shapes[1]}.",
            "Bring them to one shape.",
        )
    if sets[0].labels.ndim != sets[1].labels.ndim:
        raise DataError(
            f"{name}: one of train and test has a label per image, the other one per pixel.",
            "Give labels of one kind.",
        )
    found = [
        part.labels[part.labels != 255] if part.labels.ndim > 1 else part.labels for part in sets
    ]
    if classes is None:
        most = max((int(labels.max()) for labels in found if labels.numel()), default=0)
        classes = [str(i) for i in range(most + 1)]
    for part, where in zip(sets, ("train", "test"), strict=True):
        check_labels(part.labels, len(classes), f"{name}, {where},")
    task = "segmentation" if sets[0].labels.ndim > 1 else "classification"
    return Data(name, sets[0], sets[1], tuple(map(str, classes)), task=task)


def _images(pair: Arrays, where: str) -> MemoryImages:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise DataError(f"{where} is not a pair.", "Give (images, labels).")
    images, labels = torch.as_tensor(pair[0]), torch.as_tensor(pair[1])
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim == 4 and images.shape[-1] in (1, 3) and images.shape[1] not in (1, 3):
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or not len(images):
        raise DataError(
            f"{where}: images have shape {tuple(pair[0].shape)}.",
            "Give (n, channels, height, width), with n at least 1.",
        )
    if len(labels) != len(images):
        raise DataError(
            f"{where}: {len(images)} images and {len(labels)} labels.", "Give one label per image."
        )
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.ndim not in (1, 3):
        raise DataError(
            f"{where}: labels are {labels.dtype} of shape {tuple(labels.shape)}.",
            "Give whole numbers, one per image, or one per pixel.",
        )
    return MemoryImages(_as_bytes(images, where).contiguous(), labels)


def _as_bytes(images: Tensor, where: str) -> Tensor:
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise DataError(f"{where}: images are {images.dtype}.", "Give bytes, or numbers in [0, 1].")
    least, most = float(images.min()), float(images.max())
    if not (least >= 0 and most <= 1):
        raise DataError(
            f"{where}: pixels lie in [{least:.3g}, {most:.3g}].", "Scale them to [0, 1]."
        )
    return (images * 255).round().byte()
