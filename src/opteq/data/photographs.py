"""Photographs without labels, in grey, to learn from how images look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from opteq.data.dataset import Data, ImageSet, MemoryImages, decode
from opteq.data.listing import Paths, images_below, require_folder
from opteq.errors import DataError, counted


class Photographs(ImageSet):
    """Grey images decoded on demand: the centre of each, of one size."""

    def __init__(self, paths: Paths, size: tuple[int, int]) -> None:
        self.paths, self.size = paths, size

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> tuple[Tensor, Tensor]:
        image = decode(self.paths[index], None, channels=1)
        height, width = image.shape[-2:]
        rows, columns = self.size
        if height < rows or width < columns:
            raise DataError(
                f"{self.paths[index]} has {height}x{width} pixels, fewer than {rows}x{columns}.",
                "Set data.image_size to less, or remove the file.",
                path=self.paths[index],
            )
        top, left = (height - rows) // 2, (width - columns) // 2
        return image[:, top : top + rows, left : left + columns], torch.tensor(0)

    def subset(self, index: Sequence[int] | Tensor) -> Photographs:
        return Photographs(self.paths.take(index), self.size)

    def class_labels(self) -> Tensor:
        return torch.zeros(len(self), dtype=torch.long)


def load_bsd(folder: Path) -> Data:
    """400 Berkeley photographs of 180x180 for training, and the 68 of BSD68, 321x481, for tests;
    upright ones are turned, so that all have one shape. Never downloaded: DIR/bsd/train400 and
    DIR/bsd/test68 hold the images that the denoising literature uses."""
    home = folder / "bsd"
    if not home.is_dir() and (folder / "train400").is_dir():
        home = folder
    sets = []
    for part in ("train400", "test68"):
        paths = images_below(home / part)
        if not paths:
            raise DataError(
                f"BSD is not available: {home / part} has no images.",
                f"Put the grey images of BSD400 into {home / 'train400'} and those of BSD68 into "
                f"{home / 'test68'}; they come with the code of DnCNN.",
            )
        images = [_landscape(decode(path, None, channels=1)) for path in paths]
        shapes = {tuple(image.shape) for image in images}
        if len(shapes) > 1:
            raise DataError(
                f"{home / part} has images of different sizes: {sorted(shapes)}.",
                "Use the images that the literature uses, or data.name=photos for others.",
            )
        sets.append(MemoryImages(torch.stack(images), torch.zeros(len(images))))
    return Data("bsd", sets[0], sets[1], (), task="restoration")


def _landscape(image: Tensor) -> Tensor:
    return image.transpose(1, 2).contiguous() if image.shape[1] > image.shape[2] else image


def load_photographs(folder: Path, size: tuple[int, int]) -> Data:
    """Any folder of photographs: every tenth, in the order of their names, is for tests."""
    require_folder(folder)
    paths = images_below(folder)
    if len(paths) < 2:
        raise DataError(
            f"{folder} has {counted(len(paths), 'image')}.", "There must be at least two."
        )
    test = paths[::10]
    train = paths.take([i for i in range(len(paths)) if i % 10])
    return Data("photos", Photographs(train, size), Photographs(test, size), (), task="restoration")
