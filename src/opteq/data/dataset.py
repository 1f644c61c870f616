"""What a dataset is: images as bytes with labels, in memory or in files."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from opteq.data.listing import Paths
from opteq.errors import DataError

Task = Literal["classification", "segmentation", "restoration", "seeded"]
# How many images of each set a fingerprint includes.
_LOOKED_AT = 16
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
    """Images decoded on demand and brought to `size` x `size` (shorter side resized, centre cut
    out); grey ones become RGB."""

    def __init__(self, paths: Sequence[Path], labels: Sequence[int] | Tensor, size: int) -> None:
        self.paths = paths if isinstance(paths, Paths) else Paths(paths)
        self.labels, self.size = torch.as_tensor(labels, dtype=torch.long), size

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> tuple[Tensor, Tensor]:
        return decode(self.paths[index], self.size), self.labels[index]

    def subset(self, index: Sequence[int] | Tensor) -> FileImages:
        index = torch.as_tensor(index, dtype=torch.long)
        return FileImages(self.paths.take(index), self.labels[index], self.size)

    def class_labels(self) -> Tensor:
        return self.labels


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
    corrupted: Callable[[str, int], ImageSet] | None = None
    """Published corrupted test images by kind and severity, where they are at hand."""

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one image."""
        channels, height, width = next(decodable(self.train))[0].shape
        return channels, height, width


def decodable(images: ImageSet) -> Iterator[tuple[Tensor, Tensor]]:
    """Images with their labels, without files that cannot be decoded; an error if none can."""
    count, first = 0, None
    for index in range(len(images)):
        try:
            pair = images.read(index)
        except DataError as error:
            if error.path is None:
                raise
            first = first or error
            continue
        count += 1
        yield pair
    if first is not None and not count:
        raise DataError(
            f"None of {len(images)} images can be used. The first: {first.problem}",
            first.remedy,
            path=first.path,
        )


def content_key(*tensors: Tensor) -> str:
    """A key that identifies tensors by shape and content."""
    digest = hashlib.blake2b(digest_size=12)
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(
            tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()


def fingerprint(data: Data) -> str:
    """A key that distinguishes data of the same name, by all labels and some of the images."""
    parts = []
    for images in (data.train, data.test):
        parts.append(images.class_labels())
        for index in torch.linspace(0, len(images) - 1, min(_LOOKED_AT, len(images))).long():
            try:
                parts += images.read(int(index))
            except DataError:  # reported when it is read for use
                continue
    return content_key(*parts)


def decode(path: Path, size: int | None, channels: int = 3) -> Tensor:
    """An image file as uint8 (channels, size, size), or in its own size if `size` is None. Grey
    images of 16 bits or of floats in [0, 1] are converted to bytes."""

    def read(image):
        image = _as_bytes(image, path).convert("RGB" if channels == 3 else "L")
        return np.array(image if size is None else _centre(image, size))

    tensor = torch.from_numpy(_opened(path, read))
    return tensor.permute(2, 0, 1).contiguous() if channels == 3 else tensor[None]


def decode_labels(path: Path) -> Tensor:
    """A label map as whole numbers (height, width): grey values as they are, or for a file with a
    palette the indices, not their colours."""

    def read(image):
        if image.mode in ("P", "L", "1", "I", "I;16", "I;16B", "I;16L"):
            return np.array(image).astype(np.int64)
        if image.mode not in ("RGB", "RGBA", "LA"):
            raise DataError(
                f"{path} is a label map of mode {image.mode}.",
                "Store labels as whole numbers, in a grey or palette PNG.",
            )
        array = np.array(image)[..., : len(image.mode.removesuffix("A"))]
        if bool((array != array[..., :1]).any()):
            raise DataError(
                f"{path} is a label map in colours, without a palette of classes.",
                "Store labels as whole numbers, in a grey or palette PNG.",
            )
        return array[..., 0].astype(np.int64)

    return torch.from_numpy(_opened(path, read))


def _opened(path: Path, read: Callable[[Any], np.ndarray]) -> np.ndarray:
    """The result of `read` on an image file; errors name the file."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return read(image)
    except DataError:
        raise
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(
                f"{path} cannot be read ({error.strerror}).", "Check the path.", path=path
            ) from None
        # Of a file of another kind, Pillow only repeats the name.
        why = "" if isinstance(error, UnidentifiedImageError) else f" ({_first_line(error)})"
        raise DataError(
            f"{path} is not an image that can be decoded{why}.",
            "Replace or remove it.",
            path=path,
        ) from None
    except Image.DecompressionBombError as error:
        raise DataError(
            f"{path} is too large to decode ({_first_line(error)}).", "Make it smaller.", path=path
        ) from None


def decode_exactly(path: Path) -> tuple[Tensor, int]:
    """An image file as floats in [0, 1], (1 or 3, height, width), and how many bits a pixel had: 16
    or 8. Colours that agree everywhere are one channel."""

    def read(image):
        wide = _wide(image, path)
        if wide is not None:
            return wide
        return np.array(image.convert("RGB"))

    array = _opened(path, read)
    if array.ndim == 2:
        return torch.from_numpy(array)[None].float(), 16
    found = torch.from_numpy(array).permute(2, 0, 1).float() / 255
    return (found[:1] if bool((found == found[:1]).all()) else found), 8


def _wide(image, path: Path) -> np.ndarray | None:
    """Grey values of more than 8 bits, in [0, 1]; None for other images."""
    mode = image.mode
    if mode not in ("I", "F") and not mode.startswith("I;16"):
        return None
    values = np.array(image).astype(np.float64)
    top = 1.0 if mode == "F" else 65535.0
    # "I" holds the 16 bits of a PNG, but in other formats any 32 bits.
    known = mode != "I" or image.format == "PNG"
    if not known or not bool(((values >= 0) & (values <= top)).all()):
        span = "in [0, 1]" if mode == "F" else "of 16 bits"
        raise DataError(
            f"{path} has pixels of mode {mode} that are not all {span}.",
            "Convert it to 8 bits, so that it is clear what is black and what is white.",
            path=path,
        )
    return values / top


def _as_bytes(image, path: Path):
    """An image whose wide grey values are scaled to bytes; Pillow would clip them."""
    from PIL import Image

    values = _wide(image, path)
    if values is None:
        return image
    return Image.fromarray(np.round(values * 255).astype(np.uint8), "L")


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
    """Refuse labels that belong to no class."""
    known = labels[labels != VOID] if labels.ndim > 1 else labels
    bad = known[(known < 0) | (known >= classes)]
    if len(bad):
        raise DataError(
            f"{where} has the label {int(bad[0])}, outside 0 to {classes - 1} "
            f"({len(bad)} of {labels.numel()} labels).",
            "Check that the file belongs to this dataset, and the number of classes.",
        )
