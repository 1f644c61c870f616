"""What a dataset is: images as bytes with labels, in memory or in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from opteq.errors import DataError

Task = Literal["classification", "segmentation"]
VOID = 255
"""The label of pixels that do not count."""


class ImageSet(ABC):
    """Images of one shape, uint8 (channels, height, width), each with a label: a class, or for
    segmentation a class for each pixel."""

    @abstractmethod
    def __len__(self) -> int:
        """How many images."""

    @abstractmethod
    def read(self, index: int) -> tuple[Tensor, Tensor]:
        """One image and its label."""

    @abstractmethod
    def subset(self, index: Sequence[int] | Tensor) -> ImageSet:
        """Some of the images, in this order."""

    @abstractmethod
    def class_labels(self) -> Tensor:
        """(length,): the class of each image; for segmentation zeros."""

    def first(self, count: int | None = None) -> tuple[Tensor, Tensor]:
        """The first images, or all, and their labels, each as one tensor."""
        pairs = [self.read(i) for i in range(min(len(self), len(self) if count is None else count))]
        return torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])


class MemoryImages(ImageSet):
    """All images in one tensor: batches are one indexing operation."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels.long()

    def __len__(self) -> int:
        return len(self.images)

    def read(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]

    def subset(self, index: Sequence[int] | Tensor) -> MemoryImages:
        index = torch.as_tensor(index, dtype=torch.long)
        return MemoryImages(self.images[index], self.labels[index])

    def class_labels(self) -> Tensor:
        return self.labels if self.labels.ndim == 1 else torch.zeros(len(self), dtype=torch.long)


class FileImages(ImageSet):
    """Images decoded when they are asked for, brought to `size` x `size` (shorter side resized,
    centre cut out); grey ones become RGB."""

    def __init__(self, paths: Sequence[Path], labels: Sequence[int], size: int) -> None:
        self.paths, self.labels, self.size = list(paths), list(labels), size

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> tuple[Tensor, Tensor]:
        return decode(self.paths[index], self.size), torch.tensor(self.labels[index])

    def subset(self, index: Sequence[int] | Tensor) -> FileImages:
        chosen = torch.as_tensor(index).tolist()
        return FileImages(
            [self.paths[i] for i in chosen], [self.labels[i] for i in chosen], self.size
        )

    def class_labels(self) -> Tensor:
        return torch.tensor(self.labels, dtype=torch.long)


@dataclass(frozen=True)
class Data:
    """A training and a test set with the names of their classes."""

    name: str
    train: ImageSet
    test: ImageSet
    classes: tuple[str, ...]
    task: Task = "classification"
    unseen: ImageSet | None = None
    """Test images of classes that training never saw, for splits that keep some back."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image."""
        channels, height, width = self.train.read(0)[0].shape
        return channels, height, width


def decode(path: Path, size: int | None, channels: int = 3) -> Tensor:
    """An image file as uint8 (channels, size, size); without a size as it is."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            image = image.convert("RGB" if channels == 3 else "L")
            if size is not None:
                image = _centre(image, size)
            array = np.array(image)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} is not an image that can be decoded ({_first_line(error)}).",
            "Replace or remove it, or set data.undecodable=skip to go on without such files.",
            path=path,
        ) from None
    except Image.DecompressionBombError as error:
        raise DataError(
            f"{path} is too large to decode ({_first_line(error)}).", "Remove it.", path=path
        ) from None
    tensor = torch.from_numpy(array)
    return tensor.permute(2, 0, 1).contiguous() if channels == 3 else tensor[None]


def _centre(image, size: int):
    """The centre of an image whose shorter side was resized to `size`."""
    from PIL import Image

    width, height = image.size
    scale = size / min(width, height)
    resized = image.resize(
        (max(size, round(width * scale)), max(size, round(height * scale))),
        Image.Resampling.BILINEAR,
    )
    left, top = (resized.width - size) // 2, (resized.height - size) // 2
    return resized.crop((left, top, left + size, top + size))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def check_labels(labels: Tensor, classes: int, where: str) -> None:
    """Refuse labels that no class has."""
    known = labels[labels != VOID] if labels.ndim > 1 else labels
    bad = known[(known < 0) | (known >= classes)]
    if len(bad):
        raise DataError(
            f"{where} has the label {int(bad[0])}, outside 0 to {classes - 1} "
            f"({len(bad)} labels of {labels.numel()}).",
            "Check that the file belongs to this dataset, and the number of classes.",
        )
