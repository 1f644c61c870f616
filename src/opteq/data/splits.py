"""The papers' splits into what is learnt and what is kept back."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from opteq.data.dataset import Data, ImageSet, MemoryImages, decodable
from opteq.errors import DataError, DataWarning, OptionError, counted


def super_class_split(
    train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> tuple[MemoryImages, MemoryImages, MemoryImages]:
    """Super-classes learnt from the first four sub-classes of each: training images, test images of
    these, test images of the fifth [GEQ table 3]."""
    fifth = torch.zeros(100, dtype=torch.bool)
    for coarse in range(20):
        fine = train[0][train[0][:, 0] == coarse][:, 1].unique()
        if len(fine) != 5:
            raise DataError(
                f"Super-class {coarse} has {len(fine)} sub-classes here.", "It should have 5."
            )
        fifth[fine[-1]] = True

    def pick(part: tuple[Tensor, Tensor], unknown: bool) -> MemoryImages:
        chosen = fifth[part[0][:, 1]] == unknown
        return MemoryImages(part[1][chosen], part[0][chosen][:, 0])

    return pick(train, False), pick(test, False), pick(test, True)


def even_odd_split(data: Data) -> Data:
    """Digits as two super-classes, even and odd, learnt from the first four digits of each; test
    images of 8 and 9 become `unseen`. A small version of CIFAR-100's super-classes."""

    def pick(images: ImageSet, unseen: bool) -> MemoryImages:
        assert isinstance(images, MemoryImages)
        chosen = (images.labels >= 8) == unseen
        return MemoryImages(images.images[chosen], images.labels[chosen] % 2)

    return Data(
        data.name,
        pick(data.train, False),
        pick(data.test, False),
        ("even", "odd"),
        unseen=pick(data.test, True),
    )


def known_unknown(data: Data, known: Sequence[int]) -> Data:
    """Training on some classes only; test images of the others become `unseen` [KerDEQ table 3]."""
    table = torch.full((len(data.classes),), -1)
    for position, label in enumerate(known):
        table[label] = position

    def pick(images: MemoryImages, wanted: bool) -> MemoryImages:
        chosen = ((table[images.labels] >= 0) == wanted).nonzero()[:, 0]
        labels = table[images.labels[chosen]] if wanted else images.labels[chosen]
        return MemoryImages(images.images[chosen], labels)

    if not isinstance(data.train, MemoryImages) or not isinstance(data.test, MemoryImages):
        raise OptionError(
            f"{data.name} is read from files, and cannot be split by class.", "Use split=standard."
        )
    if data.task != "classification" or max(known) >= len(data.classes):
        raise OptionError(
            f"{data.name} does not have the classes {list(known)}.", "Use split=standard."
        )
    return Data(
        data.name,
        pick(data.train, True),
        pick(data.test, True),
        tuple(data.classes[label] for label in known),
        unseen=pick(data.test, False),
    )


def limited(images: ImageSet, count: int | None) -> ImageSet:
    """A sample of `count` images, or all: the same share of every class, and at least one where
    `count` allows. Every call gives the same sample, and every larger sample contains it."""
    if count is None or count >= len(images):
        return images
    labels = images.class_labels()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    turn = torch.empty(len(images), dtype=torch.float64)
    classes = labels.unique()
    for label in classes:
        own = order[labels[order] == label]
        turn[own] = torch.arange(len(own), dtype=torch.float64) / len(own)
    # Equal turns are ordered at random, or small samples would have only low classes.
    chosen = order[turn[order].argsort(stable=True)[:count]]
    if count < len(classes):
        warnings.warn(
            f"A sample of {counted(count, 'image')} cannot show all of {len(classes)} classes.",
            DataWarning,
            stacklevel=2,
        )
    return images.subset(chosen.sort().values)


def sample(images: ImageSet, count: int | None) -> tuple[Tensor, Tensor]:
    """`limited`, as one tensor of images and one of labels; files that cannot be decoded are left
    out."""
    pairs = list(decodable(limited(images, count)))
    return torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])


def held_out(images: ImageSet, fraction: float) -> tuple[ImageSet, ImageSet]:
    """Training images split in two: the rest, and a part held out to choose by."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    count = round(fraction * len(images))
    if not 0 < count < len(images):
        raise OptionError(
            f"data.validation={fraction} keeps back {count} of {len(images)} training images.",
            "Choose a fraction that leaves images on both sides.",
        )
    return images.subset(order[count:].sort().values), images.subset(order[:count].sort().values)
