"""The implicit networks that the papers compare with: MDEQ, monotone DEQ, Neural ODEs."""

from __future__ import annotations

from opteq.models.catalogue.entry import DIGIT_SHAPE, DIGITS, Entry

MDEQ = "Multiscale Deep Equilibrium Models (Bai et al., 2020)"
MONOTONE = "Monotone Operator Equilibrium Networks (Winston and Kolter, 2020)"
ODE = "Neural Ordinary Differential Equations (Chen et al., 2018)"
AUGMENTED = "Augmented Neural ODEs (Dupont et al., 2019)"

_MDEQ_CHOSEN = (
    "One residual block per scale, five times wider inside, group norm in 4 groups, cell weights "
    "initialised small.",
    "No weight normalisation and no dropout inside the cell.",
)
_IMAGENET_MDEQ = {"final": 2048, "side": 56, "reductions": 2, "stem": "first", "classes": 1000}
_MDEQS = (
    Entry(
        name="mdeq_cifar10_small",
        builder="mdeq:mdeq",
        options={"channels": (24, 24), "head": (7, 7), "final": 50, "side": 32},
        summary="MDEQ with two scales",
        paper=MDEQ,
        table="2",
        chosen=(
            *_MDEQ_CHOSEN,
            "The paper prints 170K for its small model. Of these, the blocks of two scales with "
            "24 channels have 2 * 2 * 9 * 24 * 120 = 104K; stem, fusion and head are not described "
            "layer by layer.",
        ),
    ),
    Entry(
        name="mdeq_cifar10_large",
        builder="mdeq:mdeq",
        options={
            "channels": (32, 64, 128, 256),
            "head": (14, 28, 56, 112),
            "final": 1680,
            "side": 32,
        },
        summary="MDEQ with four scales",
        paper=MDEQ,
        table="2",
        chosen=(
            *_MDEQ_CHOSEN,
            "The papers print 10M and 11M. Blocks have 18 * 5 * (32^2 + 64^2 + 128^2 + 256^2) = "
            "7.8M; stem, fusion and head are not described layer by layer.",
        ),
    ),
    Entry(
        name="mdeq_cifar10_2m",
        builder="mdeq:mdeq",
        options={"channels": (16, 32, 64, 128), "head": (5, 10, 20, 40), "final": 640, "side": 32},
        summary="MDEQ with four scales, a quarter of the large one",
        paper=MDEQ,
        printed_parameters="2.53M",
        chosen=(
            *_MDEQ_CHOSEN,
            "MOptEq's comparison: the large model with fewer channels, which are not printed.",
        ),
    ),
    Entry(
        name="mdeq_imagenet_small",
        builder="mdeq:mdeq",
        options={
            **_IMAGENET_MDEQ,
            "channels": (32, 64, 128, 256),
            "head": (28, 56, 112, 224),
            "expansion": 4,
        },
        summary="MDEQ-small for ImageNet: four scales from 56x56",
        paper=MDEQ,
        input_shape=(3, 224, 224),
        chosen=(
            *_MDEQ_CHOSEN,
            "Channels, head and expansion as in the authors' settings, which have 18M; stem and "
            "fusion differ in detail, and the count is 17.1M.",
        ),
    ),
    Entry(
        name="mdeq_imagenet_large",
        builder="mdeq:mdeq",
        options={
            **_IMAGENET_MDEQ,
            "channels": (84, 168, 336, 672),
            "head": (32, 64, 128, 256),
            "expansion": 4,
        },
        summary="MDEQ-large for ImageNet: four wide scales from 56x56",
        paper=MDEQ,
        input_shape=(3, 224, 224),
        printed_parameters="63M",
        chosen=(*_MDEQ_CHOSEN, "Channels chosen for the printed count."),
    ),
    Entry(
        name="mdeq_imagenet_single",
        builder="mdeq:mdeq",
        options={**_IMAGENET_MDEQ, "channels": (332,), "head": (224,)},
        summary="MDEQ with one scale of 56x56 for ImageNet",
        paper=MDEQ,
        input_shape=(3, 224, 224),
        printed_parameters="18M",
        chosen=(*_MDEQ_CHOSEN, "Channels chosen for the printed count."),
    ),
    Entry(
        name="mdeq_digits",
        builder="mdeq:mdeq",
        options={**DIGITS, "channels": (16, 16), "head": (4, 4), "final": 32, "side": 8},
        summary="MDEQ for 8x8 digits: two scales",
        paper=MDEQ,
        input_shape=DIGIT_SHAPE,
    ),
)

_MONOTONES = (
    Entry(
        name="monotone_cifar10_172k",
        builder="monotone:monotone",
        options={"channels": 81},
        summary="Monotone DEQ, one circular convolution",
        paper=MONOTONE,
        table="2",
        printed_parameters="172,218",
    ),
    Entry(
        name="monotone_cifar10_854k",
        builder="monotone:monotone",
        options={"channels": 200},
        summary="Monotone DEQ, one wide circular convolution",
        paper=MONOTONE,
        table="2",
        printed_parameters="853,612",
    ),
    Entry(
        name="monotone_tiers_cifar10_170k",
        builder="monotone:monotone_tiers",
        options={"channels": (16, 32, 60)},
        summary="Monotone DEQ, three tiers of 40x40, 20x20 and 10x10",
        paper=MONOTONE,
        table="2",
        printed_parameters="170,194",
    ),
    Entry(
        name="monotone_tiers_cifar10_1m",
        builder="monotone:monotone_tiers",
        options={"channels": (64, 128, 128)},
        summary="Monotone DEQ, three wide tiers of 40x40, 20x20 and 10x10",
        paper=MONOTONE,
        table="2",
        printed_parameters="1,014,546",
    ),
    Entry(
        name="monotone_digits",
        builder="monotone:monotone",
        options={**DIGITS, "channels": 24, "side": 8, "pool": 2},
        summary="Monotone DEQ for 8x8 digits, one circular convolution",
        paper=MONOTONE,
        input_shape=DIGIT_SHAPE,
    ),
    Entry(
        name="monotone_tiers_digits",
        builder="monotone:monotone_tiers",
        options={**DIGITS, "channels": (12, 24), "side": 8, "padding": 0},
        summary="Monotone DEQ for 8x8 digits, two tiers",
        paper=MONOTONE,
        input_shape=DIGIT_SHAPE,
    ),
)

_ODES = (
    Entry(
        name="neural_ode_cifar10",
        builder="neural_ode:neural_ode",
        options={"filters": 125, "side": 32},
        summary="Neural ODE on the image itself",
        paper=ODE,
        printed_parameters="172,358",
    ),
    Entry(
        name="augmented_ode_cifar10",
        builder="neural_ode:neural_ode",
        options={"filters": 64, "augment": 10, "side": 32},
        summary="Neural ODE with ten more channels",
        paper=AUGMENTED,
        printed_parameters="171,799",
    ),
    Entry(
        name="neural_ode_digits",
        builder="neural_ode:neural_ode",
        options={**DIGITS, "filters": 32, "side": 8},
        summary="Neural ODE for 8x8 digits",
        paper=ODE,
        input_shape=DIGIT_SHAPE,
    ),
    Entry(
        name="augmented_ode_digits",
        builder="neural_ode:neural_ode",
        options={**DIGITS, "filters": 32, "augment": 5, "side": 8},
        summary="Neural ODE with five more channels, for 8x8 digits",
        paper=AUGMENTED,
        input_shape=DIGIT_SHAPE,
    ),
)

ENTRIES = (*_MDEQS, *_MONOTONES, *_ODES)
