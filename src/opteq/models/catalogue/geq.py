"""GEQ and KerDEQ."""

from __future__ import annotations

from typing import Any

from opteq.models.catalogue.entry import DIGIT_SHAPE, DIGITS, STEM, Entry

GEQ = "GEQ: Gaussian Kernel Inspired Equilibrium Models"
KERDEQ = "KerDEQ, the first version of GEQ"

_WIDTHS = "W and U are 3x3 convolutions between the state and the middle channels."
_IMAGE_STEM = (
    "Stem: the paper's two downsampling convolutions, then that of CIFAR: two 3x3 convolutions, "
    "batch norm, ReLU. The downsampling ones alone would have 4.6M parameters where it prints 6M."
)
_GAMMA = "gamma = 0.2 / mean patch distance; the paper's minimum is unstable across seeds."
_OTHER = (
    "Spectral norm bounds; the paper's weight normalisation does not give |W| < 1 "
    '(normalization="weight_norm" selects it).',
    "Batch norm between the equilibrium and the head.",
)
_SIZES = {
    # channels of the state, middle channels
    ("cifar", "5m"): (256, (64, 128, 128, 128, 256, 256)),
    ("cifar", "8m"): (320, (80, 160, 160, 160, 320, 320)),
    ("image", "6m"): (256, (32, 64, 128, 128, 256, 256)),
    ("image", "13m"): (384, (48, 96, 192, 192, 384, 384)),
}
_LAYOUTS: dict[str, dict[str, Any]] = {
    "cifar": {"sides": (32, 16, 8, 8, 4, 4), "patch": 2, "split": 8, "hidden": 64},
    "image": {
        "sides": (64, 32, 16, 16, 8, 8),
        "reductions": 2,
        "stem": "first",
        "patch": 2,
        "split": 8,
        "hidden": 128,
    },
}


def _geq(name: str, size: tuple[str, str], classes: int, table: str) -> Entry:
    channels, middle = _SIZES[size]
    side = 32 if size[0] == "cifar" else 256
    return Entry(
        name=name,
        builder="geq:geq",
        options={
            "channels": channels,
            "middle": middle,
            "classes": classes,
            **_LAYOUTS[size[0]],
        },
        summary=f"GEQ with six patch-Gaussian branches, {side}x{side} images, {classes} classes",
        paper=GEQ,
        table=table,
        input_shape=(3, side, side),
        printed_parameters=size[1].upper(),
        chosen=(STEM if size[0] == "cifar" else _IMAGE_STEM, _WIDTHS, _GAMMA, *_OTHER),
        formerly={} if size[0] == "cifar" else {"stem": "late"},
    )


def _kerdeq(name: str, size: tuple[str, str], classes: int, table: str) -> Entry:
    channels, middle = _SIZES[size]
    side = 32 if size[0] == "cifar" else 256
    patches = {} if size[0] == "cifar" else {"patch": 4, "split": 4}
    return Entry(
        name=name,
        builder="geq:geq",
        options={
            "channels": channels,
            "middle": middle,
            "classes": classes,
            **_LAYOUTS[size[0]],
            **patches,
            "hidden": 32,
            "gamma": 0.5,
        },
        summary=f"KerDEQ with six patch-Gaussian branches, {side}x{side} images, {classes} classes",
        paper=KERDEQ,
        table=table,
        input_shape=(3, side, side),
        printed_parameters=size[1].upper(),
        chosen=(
            STEM if size[0] == "cifar" else _IMAGE_STEM,
            _WIDTHS,
            *_OTHER,
            "The paper prints the input scales and the hidden width of 32; channels are GEQ's, "
            "which have the same printed counts.",
        ),
        formerly={"hidden": 64} if size[0] == "cifar" else {"hidden": 128, "stem": "late"},
    )


ENTRIES = (
    _geq("geq_cifar10_5m", ("cifar", "5m"), 10, "1"),
    _geq("geq_cifar10_8m", ("cifar", "8m"), 10, "1"),
    _geq("geq_cifar100_5m", ("cifar", "5m"), 100, "1"),
    _geq("geq_cifar100_8m", ("cifar", "8m"), 100, "1"),
    _geq("geq_imagenette_6m", ("image", "6m"), 10, "2"),
    _geq("geq_imagenette_13m", ("image", "13m"), 10, "2"),
    _geq("geq_imagenet100_6m", ("image", "6m"), 100, "2"),
    _geq("geq_imagenet100_13m", ("image", "13m"), 100, "2"),
    _kerdeq("kerdeq_cifar10_5m", ("cifar", "5m"), 10, "1"),
    _kerdeq("kerdeq_cifar10_8m", ("cifar", "8m"), 10, "1"),
    _kerdeq("kerdeq_cifar100_5m", ("cifar", "5m"), 100, "1"),
    _kerdeq("kerdeq_cifar100_8m", ("cifar", "8m"), 100, "1"),
    _kerdeq("kerdeq_imagenette_6m", ("image", "6m"), 10, "2"),
    _kerdeq("kerdeq_imagenette_13m", ("image", "13m"), 10, "2"),
    _kerdeq("kerdeq_imagenet100_6m", ("image", "6m"), 100, "2"),
    _kerdeq("kerdeq_imagenet100_13m", ("image", "13m"), 100, "2"),
    Entry(
        name="geq_segment_tiny",
        builder="geq:geq",
        options={
            "channels": 16,
            "middle": (16, 32),
            "sides": (16, 8),
            "patch": 2,
            "split": 8,
            "hidden": 32,
            "classes": 11,
            "task": "segmentation",
            "reductions": 1,
        },
        summary="GEQ with two branches for small road scenes, 11 pixel classes",
        paper=GEQ,
        input_shape=(3, 24, 32),
    ),
    Entry(
        name="geq_digits",
        builder="geq:geq",
        options={
            **DIGITS,
            "channels": 32,
            "middle": (16, 32),
            "sides": (8, 4),
            "patch": 2,
            "split": 8,
            "hidden": 32,
        },
        summary="GEQ for 8x8 digits: two branches",
        paper=GEQ,
        input_shape=DIGIT_SHAPE,
    ),
    Entry(
        name="geq_tiny",
        builder="geq:geq",
        options={
            "channels": 32,
            "middle": (16, 32, 32),
            "sides": (32, 16, 8),
            "patch": 2,
            "split": 8,
            "hidden": 32,
        },
        summary="GEQ for 32x32 images that trains on a laptop",
        paper=GEQ,
    ),
)
