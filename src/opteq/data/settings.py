"""What a recipe says about its data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from opteq.settings import Settings

Side = Annotated[int, Field(ge=1, le=8192)]


class DataSettings(Settings):
    """Which images, and which part of them."""

    name: str
    """See `opteq list data`."""
    path: str | None = None
    """For folder, pairs and photos: where the images are, if not in the data folder itself."""
    split: Literal["standard", "super_classes", "five_known"] = "standard"
    """super_classes: four sub-classes of each are learnt, the fifth is unseen (for digits: even and
    odd, 8 and 9 unseen); five_known: only the first five classes are learnt."""
    labels: Literal["fine", "coarse"] = "fine"
    limit_train: Annotated[int, Field(ge=1)] | None = None
    limit_test: Annotated[int, Field(ge=1)] | None = None
    test: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """For folder: the fraction of each class that is kept for testing, where there are no folders
    train and val."""
    split_seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Which images these are; not the seed of the training, so that runs can be compared."""
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The fraction of the training images held out to choose the best epoch."""
    image_size: Side | tuple[Side, Side] | None = None
    """Images are read at this size; a pair (height, width) for segmentation."""
    classes: Annotated[int, Field(ge=1)] | None = None
    """For pairs and fake: how many classes there are."""
    void: tuple[Annotated[int, Field(ge=0, le=255)], ...] = (255,)
    """For pairs: labels that do not count."""
    shape: tuple[Side, Side, Side] | None = None
    """For fake: channels, height, width."""
    segmentation: bool = False
    """For fake: a label for each pixel."""
    undecodable: Literal["stop", "skip"] = "stop"
    """What happens when a file is not an image."""
    workers: Annotated[int, Field(ge=0, le=256)] = 0
    """Processes that decode files; images in memory need none."""
    download: bool = True

    @field_validator("image_size", "shape", "void", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    def side(self, default: int) -> int:
        """The side of square images."""
        if isinstance(self.image_size, tuple):
            return self.image_size[0]
        return default if self.image_size is None else self.image_size

    def pair_size(self) -> tuple[int, int] | None:
        """Height and width for segmentation."""
        if isinstance(self.image_size, int):
            return self.image_size, self.image_size
        return self.image_size


class MeasureSettings(Settings):
    """What a model gets to see where that is not the image itself. For restoration: noise, and
    parts of clean images; the model knows by which operator they are measured. For segmentation
    from marked pixels: how many there are."""

    noise: tuple[Annotated[float, Field(ge=0, le=255)], Annotated[float, Field(ge=0, le=255)]] = (
        0.0,
        30.0,
    )
    """The standard deviation of a pixel's noise, in grey levels of 255: drawn between these two for
    each training image."""
    test_noise: Annotated[float, Field(ge=0, le=255)] = 25.0
    crop: Annotated[int, Field(ge=8, le=4096)] = 64
    """The side of the parts of training images that are learnt from."""
    margin: Annotated[int, Field(ge=0, le=1024)] = 6
    """Pixels at the edge of such a part that do not count, since filters see no further."""
    seeds: Annotated[int, Field(ge=1, le=10_000)] = 5
    """How many pixels of each class in an image are marked, or as many as there are."""
    watch: Annotated[int, Field(ge=1)] = 4
    """How many test images are restored after an epoch; `opteq evaluate` restores them all."""

    @field_validator("noise", mode="before")
    @classmethod
    def _as_pair(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _consistent(self) -> MeasureSettings:
        if self.noise[0] > self.noise[1]:
            raise ValueError("noise is a pair (least, most)")
        if 2 * self.margin >= self.crop:
            raise ValueError("margin leaves nothing of the crop")
        return self


class AugmentSettings(Settings):
    """What is done to training images."""

    crop: Annotated[int, Field(ge=0, le=256)] = 0
    """Width of the zero padding from which an image is cropped at random."""
    flip: bool = False
    rand_augment: Annotated[int, Field(ge=0, le=8)] = 0
    """How many random operations of RandAugment are applied."""
    magnitude: Annotated[int, Field(ge=0, le=30)] = 9
    """The magnitude of RandAugment, 0 to 30."""
