"""MOptEq and POptEq."""

from __future__ import annotations

from typing import Any

from opteq.models.catalogue.entry import DIGIT_SHAPE, DIGITS, STEM, Entry

GEQ = "GEQ: Gaussian Kernel Inspired Equilibrium Models"
MOPTEQ = "Optimization Inspired Multi-Branch Equilibrium Models"

_SMOOTH = "Smooth diversity, nearly as strong as the paper's sign, with which solves stall."
_MIDDLE = "Middle channels C (1/8, 1/4, 1/4, 1/2); this fits the paper's count."
_SIX = (
    "GEQ's section 4.2 gives MOptEq the architecture of GEQ: its six branches and their channels, "
    "narrower where the printed count is smaller."
)
_SMALL: dict[str, Any] = {"channels": 32, "middle": (64, 128, 128), "sides": (32, 32, 32)}
_SMALL_CHOSEN = (
    STEM,
    "Middle channels 64, 128, 128, not given in the paper: 195K against its 193K.",
)


def _mopteq(
    name: str,
    channels: int,
    printed: str,
    *,
    classes: int = 10,
    images: bool = False,
    table: str = "1, 2",
    chosen: tuple[str, ...] = (),
) -> Entry:
    middle = tuple(channels * part // 8 for part in (1, 2, 2, 4))
    options: dict[str, Any] = {
        "channels": channels,
        "middle": middle,
        "sides": (64, 32, 16, 8) if images else (32, 16, 8, 4),
        "diversity_weight": 0.001,
        "classes": classes,
    }
    if images:
        options |= {"reductions": 2, "stem": "first"}
    sides = ", ".join(str(side) for side in options["sides"])
    return Entry(
        name=name,
        builder="mopteq:mopteq",
        options=options,
        summary=f"MOptEq with four coupled branches at {sides}, {classes} classes",
        paper=MOPTEQ,
        table=table,
        input_shape=(3, 256, 256) if images else (3, 32, 32),
        printed_parameters=printed,
        chosen=(STEM, _MIDDLE, _SMOOTH, *chosen),
        formerly={"stem": "late"} if images else {},
    )


_IMAGES = (
    "Images of 256x256, brought to 64x64 by two strided convolutions in the stem, as in the "
    "paper; channels chosen to match the paper's count.",
)

ENTRIES = (
    _mopteq("mopteq_cifar10_480k", 128, "0.48M"),
    _mopteq("mopteq_cifar10_2m", 256, "1.9M"),
    _mopteq("mopteq_cifar100_2m", 256, "1.9M", classes=100),
    _mopteq(
        "mopteq_cifar100_8m",
        528,
        "8.1M",
        classes=100,
        chosen=("528 channels; the paper does not give them for this size.",),
    ),
    _mopteq("mopteq_imagenette_2m", 200, "1.9M", images=True, table="2", chosen=_IMAGES),
    _mopteq("mopteq_imagenette_10m", 456, "10M", images=True, table="2", chosen=_IMAGES),
    _mopteq(
        "mopteq_imagenet_13m",
        512,
        "13M",
        images=True,
        table="4",
        classes=1000,
        chosen=_IMAGES,
    ),
    *(
        Entry(
            name=name,
            builder="mopteq:mopteq",
            options={
                "channels": channels,
                "middle": middle,
                "sides": (64, 32, 16, 16, 8, 8) if images else (32, 16, 8, 8, 4, 4),
                "diversity_weight": 0.001,
                "classes": classes,
                **({"reductions": 2, "stem": "first"} if images else {}),
            },
            summary=f"MOptEq with six coupled branches, as GEQ's comparison has it, {classes} "
            "classes",
            paper=GEQ,
            table="2" if images else "1",
            input_shape=(3, 256, 256) if images else (3, 32, 32),
            printed_parameters=printed,
            chosen=(STEM, _SMOOTH, _SIX),
        )
        for name, channels, middle, classes, images, printed in (
            ("mopteq_six_cifar10_8m", 320, (80, 160, 160, 160, 320, 320), 10, False, "8M"),
            ("mopteq_six_cifar100_8m", 320, (80, 160, 160, 160, 320, 320), 100, False, "8M"),
            ("mopteq_six_imagenette_10m", 336, (42, 84, 168, 168, 336, 336), 10, True, "10M"),
            ("mopteq_six_imagenet100_13m", 384, (48, 96, 192, 192, 384, 384), 100, True, "13M"),
        )
    ),
    Entry(
        name="mopteq_cifar10_small",
        builder="mopteq:mopteq",
        options={**_SMALL, "diversity_weight": 0.01},
        summary="MOptEq with three coupled branches at one scale",
        paper=MOPTEQ,
        table="1",
        printed_parameters="193K",
        chosen=(*_SMALL_CHOSEN, _SMOOTH),
    ),
    Entry(
        name="popteq_cifar10_small",
        builder="mopteq:mopteq",
        options={**_SMALL, "coupling": "none"},
        summary="POptEq: the same branches without coupling, outputs summed",
        paper=MOPTEQ,
        table="1",
        printed_parameters="193K",
        chosen=_SMALL_CHOSEN,
    ),
    Entry(
        name="popteq_cifar10_small_conv",
        builder="mopteq:mopteq",
        options={**_SMALL, "coupling": "none", "fusion": "conv"},
        summary="POptEq with a 3x3 convolution over all branches as fusion",
        paper=MOPTEQ,
        table="1",
        printed_parameters="276K",
        chosen=_SMALL_CHOSEN,
    ),
    Entry(
        name="mopteq_digits",
        builder="mopteq:mopteq",
        options={**DIGITS, "channels": 24, "middle": (16, 16, 32), "sides": (8, 4, 2)},
        summary="MOptEq for 8x8 digits: three scales",
        paper=MOPTEQ,
        input_shape=DIGIT_SHAPE,
    ),
    Entry(
        name="mopteq_tiny",
        builder="mopteq:mopteq",
        options={"channels": 32, "middle": (8, 16, 16, 32), "sides": (32, 16, 8, 4)},
        summary="MOptEq for 32x32 images that trains on a laptop",
        paper=MOPTEQ,
    ),
)
