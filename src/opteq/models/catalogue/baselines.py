"""The baselines that the papers compare with."""

from __future__ import annotations

from opteq.models.catalogue.entry import DIGIT_SHAPE, DIGITS, Entry

RESNET = "Deep Residual Learning for Image Recognition (He et al., 2016)"
WIDE = "Wide Residual Networks (Zagoruyko and Komodakis, 2016)"
FCN = "Fully Convolutional Networks for Semantic Segmentation (Long et al., 2015)"
MDEQ = "Multiscale Deep Equilibrium Models (Bai et al., 2020)"
MONOTONE = "Monotone Operator Equilibrium Networks (Winston and Kolter, 2020)"
ODE = "Neural Ordinary Differential Equations (Chen et al., 2018)"
AUGMENTED = "Augmented Neural ODEs (Dupont et al., 2019)"
TIED = "a control without a paper of its own"

_RESNETS = (
    Entry(
        name="resnet18_cifar10",
        builder="resnet:resnet",
        options={"depth": 18},
        summary="ResNet-18 with the stem for 32x32 images",
        paper=RESNET,
        reported_parameters=11_173_962,
        chosen=("The equilibrium papers print 10M for this network.",),
    ),
    Entry(
        name="resnet18_cifar100",
        builder="resnet:resnet",
        options={"depth": 18, "classes": 100},
        summary="ResNet-18 with the stem for 32x32 images, 100 classes",
        paper=RESNET,
        chosen=("The equilibrium papers print 10M for this network.",),
    ),
    Entry(
        name="resnet50_cifar10",
        builder="resnet:resnet",
        options={"depth": 50},
        summary="ResNet-50 with the stem for 32x32 images",
        paper=RESNET,
        reported_parameters=23_000_000,
    ),
    Entry(
        name="resnet18_imagenet",
        builder="resnet:resnet",
        options={"depth": 18, "stem": "imagenet", "classes": 1000},
        summary="ResNet-18 for ImageNet",
        paper=RESNET,
        input_shape=(3, 224, 224),
        reported_parameters=11_689_512,
    ),
    Entry(
        name="resnet50_imagenet",
        builder="resnet:resnet",
        options={"depth": 50, "stem": "imagenet", "classes": 1000},
        summary="ResNet-50 for ImageNet",
        paper=RESNET,
        input_shape=(3, 224, 224),
        reported_parameters=25_557_032,
    ),
    Entry(
        name="wide_resnet50_imagenet",
        builder="resnet:resnet",
        options={"depth": 50, "stem": "imagenet", "classes": 1000, "widening": 2},
        summary="Wide-ResNet-50-2 for ImageNet",
        paper=WIDE,
        input_shape=(3, 224, 224),
        reported_parameters=68_883_240,
    ),
    Entry(
        name="resnet_digits",
        builder="resnet:resnet",
        options={**DIGITS, "depth": 18, "width": 8},
        summary="a narrow ResNet-18 for 8x8 digits",
        paper=RESNET,
        input_shape=DIGIT_SHAPE,
    ),
    Entry(
        name="resnet_tiny",
        builder="resnet:resnet",
        options={"depth": 18, "width": 6},
        summary="a narrow ResNet-18 for 32x32 images that trains on a laptop",
        paper=RESNET,
    ),
    Entry(
        name="fcn_resnet50_cityscapes",
        builder="resnet:resnet",
        options={
            "depth": 50,
            "stem": "imagenet",
            "classes": 19,
            "task": "segmentation",
            "dilated": True,
        },
        summary="ResNet-50 with dilated last stages and an FCN head, 19 pixel classes",
        paper=FCN,
        input_shape=(3, 512, 1024),
        chosen=("Output stride 8 by dilation, without auxiliary loss.",),
    ),
    Entry(
        name="fcn_segment_tiny",
        builder="resnet:resnet",
        options={"depth": 18, "width": 8, "classes": 11, "task": "segmentation", "dilated": True},
        summary="a narrow ResNet-18 with an FCN head for small road scenes",
        paper=FCN,
        input_shape=(3, 24, 32),
    ),
)

_MDEQ_CHOSEN = (
    "One residual block per scale, five times wider inside, group norm in 4 groups, cell weights "
    "initialised small.",
    "No weight normalisation and no dropout inside the cell.",
)
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
        summary="monotone DEQ, one circular convolution",
        paper=MONOTONE,
        table="2",
        reported_parameters=172_218,
    ),
    Entry(
        name="monotone_cifar10_854k",
        builder="monotone:monotone",
        options={"channels": 200},
        summary="monotone DEQ, one wide circular convolution",
        paper=MONOTONE,
        table="2",
        reported_parameters=853_612,
    ),
    Entry(
        name="monotone_tiers_cifar10_170k",
        builder="monotone:monotone_tiers",
        options={"channels": (16, 32, 60)},
        summary="monotone DEQ, three tiers of 40x40, 20x20 and 10x10",
        paper=MONOTONE,
        table="2",
        reported_parameters=170_194,
    ),
    Entry(
        name="monotone_tiers_cifar10_1m",
        builder="monotone:monotone_tiers",
        options={"channels": (64, 128, 128)},
        summary="monotone DEQ, three wide tiers of 40x40, 20x20 and 10x10",
        paper=MONOTONE,
        table="2",
        reported_parameters=1_014_546,
    ),
    Entry(
        name="monotone_digits",
        builder="monotone:monotone",
        options={**DIGITS, "channels": 24, "side": 8, "pool": 2},
        summary="monotone DEQ for 8x8 digits, one circular convolution",
        paper=MONOTONE,
        input_shape=DIGIT_SHAPE,
    ),
    Entry(
        name="monotone_tiers_digits",
        builder="monotone:monotone_tiers",
        options={**DIGITS, "channels": (12, 24), "side": 8, "padding": 0},
        summary="monotone DEQ for 8x8 digits, two tiers",
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
        reported_parameters=172_358,
    ),
    Entry(
        name="augmented_ode_cifar10",
        builder="neural_ode:neural_ode",
        options={"filters": 64, "augment": 10, "side": 32},
        summary="Neural ODE with ten more channels",
        paper=AUGMENTED,
        reported_parameters=171_799,
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

_TIED = (
    Entry(
        name="tied_cifar10",
        builder="tied:weight_tied",
        options={"channels": 132},
        summary="weight-tied feed-forward net of ten layers, about the size of opteq_cifar10_162k",
        paper=TIED,
        chosen=("One free 3x3 convolution used ten times, with the input added each time.",),
    ),
    Entry(
        name="tied_digits",
        builder="tied:weight_tied",
        options={**DIGITS, "channels": 32},
        summary="weight-tied feed-forward net of ten layers for 8x8 digits",
        paper=TIED,
        input_shape=DIGIT_SHAPE,
    ),
)

ENTRIES = (*_RESNETS, *_MDEQS, *_MONOTONES, *_ODES, *_TIED)
