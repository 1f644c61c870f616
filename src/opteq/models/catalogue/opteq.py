"""OptEq and deep OptEq."""

from __future__ import annotations

from typing import Any

from opteq.models.catalogue.entry import DIGIT_SHAPE, DIGITS, Entry

OPTEQ = "Optimization Induced Equilibrium Networks"

_DEEP = (
    "State of 30 channels, W and U both 3x3; this fits both counts of the paper within 3%.",
    "alpha 0.8, for which the paper reports its best results without regularizers.",
    "Solves start at zero; the equilibrium is unique, so the start does not matter.",
)
_IMAGENET = (
    "Units have W and U of the printed depthwise-separable shapes; the head has its two 1x1 "
    "convolutions and a linear layer to 1000 classes; biases and batch norm as usual.",
    "The printed sizes do not follow from the printed shapes, so the count is left as it is. "
    "Two stages of {extractor} that end at 28x28x512 have {two}; the paper's {printed} corresponds "
    "to three stages ({three}). W and U of all units have {units}; it prints {units_paper}.",
    "Decorrelation inside the map, weight 0.001, for which solves converge; the paper prints none.",
)


def _deep(name: str, widths: tuple[int, ...], count: str, table: str) -> Entry:
    return Entry(
        name=name,
        builder="deep:deep_opteq",
        options={"channels": 30, "widths": widths},
        summary="Deep OptEq, five 3x3 unit layers",
        paper=OPTEQ,
        table=table,
        printed_parameters=count,
        chosen=_DEEP,
    )


def _imagenet(name: str, options: dict[str, Any], **facts: str) -> Entry:
    return Entry(
        name=name,
        builder="deep:deep_opteq",
        options={
            "channels": 512,
            "classes": 1000,
            "head": "convolutions",
            "regularizer": "decorrelation",
            "regularizer_weight": 0.001,
            "gradient": {"name": "unrolled", "steps": 5},
            **options,
        },
        summary=f"Deep OptEq for ImageNet behind two stages of {facts['extractor']}",
        paper=OPTEQ,
        table="6, 7",
        input_shape=(3, 224, 224),
        chosen=tuple(line.format(**facts) for line in _IMAGENET),
    )


ENTRIES = (
    _deep("opteq_cifar10_162k", (16, 32, 64, 64, 128), "162k", "4"),
    _deep("opteq_cifar10_199k", (16, 32, 64, 128, 128), "199k", "3, 5, 8"),
    Entry(
        name="opteq_cifar10_1m",
        builder="deep:deep_opteq",
        options={"channels": 104, "widths": (32, 64, 128, 256, 256)},
        summary="Deep OptEq, five 3x3 unit layers",
        paper=OPTEQ,
        table="4",
        printed_parameters="1.4M",
        chosen=("Twice the widths and 104 channels; the paper gives only the count.",),
    ),
    _imagenet(
        "opteq_imagenet_small",
        {"extractor": "resnet50", "widths": (512,) * 5, "unit": "separable"},
        extractor="ResNet-50",
        two="1.4M",
        printed="8M",
        three="8.5M",
        units="2.7M",
        units_paper="7M",
    ),
    _imagenet(
        "opteq_imagenet_mid",
        {"extractor": "wide_resnet50", "widths": (512,) * 3, "unit": "double_separable"},
        extractor="Wide-ResNet-50",
        two="4.1M",
        printed="24M",
        three="24.9M",
        units="4.9M",
        units_paper="13M",
    ),
    Entry(
        name="opteq_cityscapes",
        builder="deep:deep_opteq",
        options={
            "channels": 256,
            "widths": (256, 512, 512),
            "classes": 19,
            "task": "segmentation",
            "reductions": 3,
            "stem": "first",
        },
        summary="Deep OptEq with three unit layers and an FCN head, 19 pixel classes",
        paper=OPTEQ,
        table="10",
        input_shape=(3, 512, 1024),
        chosen=(
            "State of 256 channels at an eighth of the image, three strided convolutions in front; "
            "the paper gives only the widths of the units.",
        ),
        formerly={"stem": "late"},
    ),
    Entry(
        name="opteq_segment_tiny",
        builder="deep:deep_opteq",
        options={
            "channels": 16,
            "widths": (16, 32, 32),
            "classes": 11,
            "task": "segmentation",
            "reductions": 1,
        },
        summary="Deep OptEq for small road scenes, 11 pixel classes",
        paper=OPTEQ,
        input_shape=(3, 24, 32),
    ),
    Entry(
        name="opteq_digits",
        builder="deep:deep_opteq",
        options={**DIGITS, "channels": 16, "widths": (16, 32, 32)},
        summary="Deep OptEq for 8x8 digits: three unit layers",
        paper=OPTEQ,
        input_shape=DIGIT_SHAPE,
    ),
    Entry(
        name="opteq_single_digits",
        builder="deep:deep_opteq",
        options={**DIGITS, "channels": 32, "widths": (48,), "alpha": 1.0},
        summary="OptEq for 8x8 digits: one unit layer, the minimiser of theorem 1",
        paper=OPTEQ,
        input_shape=DIGIT_SHAPE,
    ),
    Entry(
        name="opteq_tiny",
        builder="deep:deep_opteq",
        options={"channels": 16, "widths": (16, 32, 32)},
        summary="Deep OptEq for 32x32 images that trains on a laptop",
        paper=OPTEQ,
    ),
)
