"""Every named model: what it is, where it comes from, how it is built.

No torch here, so that listing is instant. The list, the model cards and the test matrix all read
this: a model that is added here is listed, documented and tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GEQ = "GEQ: Gaussian Kernel Inspired Equilibrium Models"
KERDEQ = "KerDEQ, the first version of GEQ"
MOPTEQ = "Optimization Inspired Multi-Branch Equilibrium Models"
OPTEQ = "Optimization Induced Equilibrium Networks"
RESNET = "Deep Residual Learning for Image Recognition"


@dataclass(frozen=True)
class Entry:
    """A named model."""

    name: str
    builder: str
    """`module:function` inside `opteq.models`."""
    options: dict[str, Any]
    """Arguments of the builder; a caller may override each."""
    summary: str
    paper: str
    table: str = ""
    input_shape: tuple[int, int, int] = (3, 32, 32)
    reported_parameters: int | None = None
    """The paper's count."""
    chosen: tuple[str, ...] = ()
    """What the paper leaves open, and what stands here."""


_STEM = "Stem: two 3x3 convolutions, batch norm, ReLU; this fits the paper's count."
_GEQ_CHOSEN = (
    _STEM,
    "W and U are 3x3 convolutions between the state and the middle channels.",
    "gamma = 0.2 / mean patch distance; the paper's minimum is unstable across seeds.",
    "Spectral norm bounds; the paper's weight normalisation does not give |W| < 1.",
    "Batch norm between the equilibrium and the head.",
)
_MOPTEQ_CHOSEN = (
    _STEM,
    "Middle channels C (1/8, 1/4, 1/4, 1/2); this fits the paper's count.",
    "Smooth diversity term; the paper's sign makes solves stall.",
)
_DEEP_CHOSEN = (
    "State of 30 channels, W and U both 3x3; this fits both counts of the paper within 3%.",
    "alpha 0.8, for which the paper reports its best results without regularisers.",
    "Solves start at zero; the equilibrium is unique, so the start does not matter.",
)
_CIFAR_PATCHES = {"sides": (32, 16, 8, 8, 4, 4), "patch": 2, "split": 8, "hidden": 64}
_IMAGE_PATCHES = {
    "sides": (64, 32, 16, 16, 8, 8),
    "reductions": 2,
    "patch": 2,
    "split": 8,
    "hidden": 128,
}
_DIGITS = {"in_channels": 1, "classes": 10}


def _geq(
    name: str,
    channels: int,
    middle: tuple[int, ...],
    reported: int | None,
    table: str,
    *,
    images: bool = False,
    classes: int = 10,
    paper: str = GEQ,
    extra: dict[str, Any] | None = None,
) -> Entry:
    layout = _IMAGE_PATCHES if images else _CIFAR_PATCHES
    return Entry(
        name,
        "geq:geq",
        {"channels": channels, "middle": middle, "classes": classes, **layout, **(extra or {})},
        f"{'KerDEQ' if paper == KERDEQ else 'GEQ'} with six patch-Gaussian branches, "
        f"{256 if images else 32}x{256 if images else 32} images, {classes} classes",
        paper,
        table,
        (3, 256, 256) if images else (3, 32, 32),
        reported,
        _GEQ_CHOSEN if paper == GEQ else (*_GEQ_CHOSEN[:2], *_GEQ_CHOSEN[3:]),
    )


_C5, _C8 = (64, 128, 128, 128, 256, 256), (80, 160, 160, 160, 320, 320)
_I6, _I13 = (32, 64, 128, 128, 256, 256), (48, 96, 192, 192, 384, 384)
_FIXED_GAMMA = {"gamma": 0.5}
_LARGE_PATCHES = {"gamma": 0.5, "patch": 4, "split": 4}


def _mopteq(
    name: str, channels: int, reported: int, *, classes: int = 10, chosen: tuple[str, ...] = ()
) -> Entry:
    middle = tuple(channels * part // 8 for part in (1, 2, 2, 4))
    return Entry(
        name,
        "mopteq:mopteq",
        {
            "channels": channels,
            "middle": middle,
            "sides": (32, 16, 8, 4),
            "diversity_weight": 0.001,
            "classes": classes,
        },
        f"MOptEq with four coupled branches at 32, 16, 8, 4, {classes} classes",
        MOPTEQ,
        "1, 2",
        reported_parameters=reported,
        chosen=(*_MOPTEQ_CHOSEN, *chosen),
    )


_SMALL = {"channels": 32, "middle": (64, 128, 128), "sides": (32, 32, 32)}
_SMALL_CHOSEN = (
    _STEM,
    "Middle channels 64, 128, 128, not given in the paper: 195K against its 193K.",
)

ENTRIES = (
    _geq("geq_cifar10_5m", 256, _C5, 5_040_000, "1"),
    _geq("geq_cifar10_8m", 320, _C8, 7_860_000, "1"),
    _geq("geq_cifar100_5m", 256, _C5, 5_040_000, "1", classes=100),
    _geq("geq_cifar100_8m", 320, _C8, 7_860_000, "1", classes=100),
    _geq("geq_imagenette_6m", 256, _I6, 5_790_000, "2", images=True),
    _geq("geq_imagenette_13m", 384, _I13, 12_980_000, "2", images=True),
    _geq("geq_imagenet100_6m", 256, _I6, 5_790_000, "2", images=True, classes=100),
    _geq("geq_imagenet100_13m", 384, _I13, 12_980_000, "2", images=True, classes=100),
    _geq("kerdeq_cifar10_5m", 256, _C5, None, "1", paper=KERDEQ, extra=_FIXED_GAMMA),
    _geq("kerdeq_cifar10_8m", 320, _C8, None, "1", paper=KERDEQ, extra=_FIXED_GAMMA),
    _geq(
        "kerdeq_imagenette_6m", 256, _I6, None, "2", images=True, paper=KERDEQ, extra=_LARGE_PATCHES
    ),
    _mopteq("mopteq_cifar10_480k", 128, 480_000),
    _mopteq("mopteq_cifar10_2m", 256, 1_900_000),
    _mopteq("mopteq_cifar100_2m", 256, 1_900_000, classes=100),
    _mopteq(
        "mopteq_cifar100_8m",
        528,
        8_100_000,
        classes=100,
        chosen=("528 channels; the paper does not give them for this size.",),
    ),
    Entry(
        "mopteq_cifar10_small",
        "mopteq:mopteq",
        {**_SMALL, "diversity_weight": 0.01},
        "MOptEq with three coupled branches at one scale",
        MOPTEQ,
        "1",
        reported_parameters=193_000,
        chosen=(*_SMALL_CHOSEN, _MOPTEQ_CHOSEN[2]),
    ),
    Entry(
        "popteq_cifar10_small",
        "mopteq:mopteq",
        {**_SMALL, "coupling": "none"},
        "POptEq: the same branches without coupling, outputs summed",
        MOPTEQ,
        "1",
        reported_parameters=193_000,
        chosen=_SMALL_CHOSEN,
    ),
    Entry(
        "popteq_cifar10_small_conv",
        "mopteq:mopteq",
        {**_SMALL, "coupling": "none", "fusion": "conv"},
        "POptEq with a 3x3 convolution over all branches as fusion",
        MOPTEQ,
        "1",
        reported_parameters=276_000,
        chosen=_SMALL_CHOSEN,
    ),
    Entry(
        "opteq_cifar10_162k",
        "deep:deep_opteq",
        {"channels": 30, "widths": (16, 32, 64, 64, 128)},
        "deep OptEq, five 3x3 unit layers",
        OPTEQ,
        "4",
        reported_parameters=162_000,
        chosen=_DEEP_CHOSEN,
    ),
    Entry(
        "opteq_cifar10_199k",
        "deep:deep_opteq",
        {"channels": 30, "widths": (16, 32, 64, 128, 128)},
        "deep OptEq, five 3x3 unit layers",
        OPTEQ,
        "3, 5, 8",
        reported_parameters=199_000,
        chosen=_DEEP_CHOSEN,
    ),
    Entry(
        "opteq_cifar10_1m",
        "deep:deep_opteq",
        {"channels": 104, "widths": (32, 64, 128, 256, 256)},
        "deep OptEq, five 3x3 unit layers",
        OPTEQ,
        "4",
        reported_parameters=1_400_000,
        chosen=("Twice the widths and 104 channels; the paper gives only the count.",),
    ),
    Entry(
        "opteq_cityscapes",
        "deep:deep_opteq",
        {
            "channels": 256,
            "widths": (256, 512, 512),
            "classes": 19,
            "task": "segmentation",
            "reductions": 3,
        },
        "deep OptEq with three unit layers and an FCN head, 19 classes of pixels",
        OPTEQ,
        "10",
        (3, 512, 1024),
        chosen=(
            "State of 256 channels at an eighth of the image, three strided convolutions in front; "
            "the paper gives the widths of the units only.",
        ),
    ),
    Entry(
        "opteq_segment_tiny",
        "deep:deep_opteq",
        {
            "channels": 16,
            "widths": (16, 32, 32),
            "classes": 11,
            "task": "segmentation",
            "reductions": 1,
        },
        "deep OptEq for small road scenes, 11 classes of pixels",
        OPTEQ,
        input_shape=(3, 24, 32),
    ),
    Entry(
        "resnet18_cifar10",
        "resnet:resnet",
        {"depth": 18},
        "ResNet-18 with the stem for 32x32 images",
        RESNET,
        reported_parameters=11_173_962,
        chosen=("The equilibrium papers print 10M for this network.",),
    ),
    Entry(
        "resnet50_cifar10",
        "resnet:resnet",
        {"depth": 50},
        "ResNet-50 with the stem for 32x32 images",
        RESNET,
        reported_parameters=23_000_000,
    ),
    Entry(
        "resnet18_imagenet",
        "resnet:resnet",
        {"depth": 18, "stem": "imagenet", "classes": 1000},
        "ResNet-18 for ImageNet",
        RESNET,
        input_shape=(3, 224, 224),
        reported_parameters=11_689_512,
    ),
    Entry(
        "resnet50_imagenet",
        "resnet:resnet",
        {"depth": 50, "stem": "imagenet", "classes": 1000},
        "ResNet-50 for ImageNet",
        RESNET,
        input_shape=(3, 224, 224),
        reported_parameters=25_557_032,
    ),
    Entry(
        "resnet_digits",
        "resnet:resnet",
        {**_DIGITS, "depth": 18, "width": 8},
        "a narrow ResNet-18 for 8x8 digits",
        RESNET,
        input_shape=(1, 8, 8),
    ),
    Entry(
        "geq_digits",
        "geq:geq",
        {
            **_DIGITS,
            "channels": 32,
            "middle": (16, 32),
            "sides": (8, 4),
            "patch": 2,
            "split": 8,
            "hidden": 32,
        },
        "GEQ for 8x8 digits: two branches",
        GEQ,
        input_shape=(1, 8, 8),
    ),
    Entry(
        "geq_tiny",
        "geq:geq",
        {
            "channels": 32,
            "middle": (16, 32, 32),
            "sides": (32, 16, 8),
            "patch": 2,
            "split": 8,
            "hidden": 32,
        },
        "GEQ for 32x32 images that trains on a laptop",
        GEQ,
    ),
    Entry(
        "mopteq_digits",
        "mopteq:mopteq",
        {**_DIGITS, "channels": 24, "middle": (16, 16, 32), "sides": (8, 4, 2)},
        "MOptEq for 8x8 digits: three scales",
        MOPTEQ,
        input_shape=(1, 8, 8),
    ),
    Entry(
        "mopteq_tiny",
        "mopteq:mopteq",
        {"channels": 32, "middle": (8, 16, 16, 32), "sides": (32, 16, 8, 4)},
        "MOptEq for 32x32 images that trains on a laptop",
        MOPTEQ,
    ),
    Entry(
        "opteq_digits",
        "deep:deep_opteq",
        {**_DIGITS, "channels": 16, "widths": (16, 32, 32)},
        "deep OptEq for 8x8 digits: three unit layers",
        OPTEQ,
        input_shape=(1, 8, 8),
    ),
    Entry(
        "opteq_tiny",
        "deep:deep_opteq",
        {"channels": 16, "widths": (16, 32, 32)},
        "deep OptEq for 32x32 images that trains on a laptop",
        OPTEQ,
    ),
)
