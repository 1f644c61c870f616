"""The baselines that the papers compare with."""

from __future__ import annotations

from opteq.models.catalogue.entry import DIGIT_SHAPE, DIGITS, Entry

RESNET = "Deep Residual Learning for Image Recognition (He et al., 2016)"
WIDE = "Wide Residual Networks (Zagoruyko and Komodakis, 2016)"
HRNET = "Deep High-Resolution Representation Learning for Visual Recognition (Wang et al., 2019)"
FCN = "Fully Convolutional Networks for Semantic Segmentation (Long et al., 2015)"
MDEQ = "Multiscale Deep Equilibrium Models (Bai et al., 2020)"
MONOTONE = "Monotone Operator Equilibrium Networks (Winston and Kolter, 2020)"
ODE = "Neural Ordinary Differential Equations (Chen et al., 2018)"
AUGMENTED = "Augmented Neural ODEs (Dupont et al., 2019)"
OPTEQ = "Optimization Induced Equilibrium Networks"
TIED = "a control without a paper of its own"

_EXTRACTOR = {
    "depth": 50,
    "stem": "imagenet",
    "stages": 2,
    "head": "convolutions",
    "classes": 1000,
}
_RESNETS = (
    Entry(
        name="resnet18_cifar10",
        builder="resnet:resnet",
        options={"depth": 18},
        summary="ResNet-18 with the stem for 32x32 images",
        paper=RESNET,
        printed_parameters="11,173,962",
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
        printed_parameters="23M",
    ),
    Entry(
        name="resnet18_imagenet",
        builder="resnet:resnet",
        options={"depth": 18, "stem": "imagenet", "classes": 1000},
        summary="ResNet-18 for ImageNet",
        paper=RESNET,
        input_shape=(3, 224, 224),
        printed_parameters="11,689,512",
    ),
    Entry(
        name="resnet50_imagenet",
        builder="resnet:resnet",
        options={"depth": 50, "stem": "imagenet", "classes": 1000},
        summary="ResNet-50 for ImageNet",
        paper=RESNET,
        input_shape=(3, 224, 224),
        printed_parameters="25,557,032",
    ),
    Entry(
        name="resnet34_imagenet",
        builder="resnet:resnet",
        options={"depth": 34, "stem": "imagenet", "classes": 1000},
        summary="ResNet-34 for ImageNet",
        paper=RESNET,
        input_shape=(3, 224, 224),
        printed_parameters="21,797,672",
    ),
    Entry(
        name="resnet101_imagenet",
        builder="resnet:resnet",
        options={"depth": 101, "stem": "imagenet", "classes": 1000},
        summary="ResNet-101 for ImageNet",
        paper=RESNET,
        input_shape=(3, 224, 224),
        printed_parameters="44,549,160",
        chosen=("OptEq's table 7 prints 52M for this network.",),
    ),
    Entry(
        name="resnet50_extractor_imagenet",
        builder="resnet:resnet",
        options={**_EXTRACTOR},
        summary="OptEq-small without its equilibrium: two stages of ResNet-50 and its head",
        paper=OPTEQ,
        table="7",
        input_shape=(3, 224, 224),
        chosen=(
            "The paper prints 11M, of which 8M for the extractor; the two stages that end at "
            "28x28x512, as it describes them, have 1.4M.",
        ),
    ),
    Entry(
        name="wide_resnet50_extractor_imagenet",
        builder="resnet:resnet",
        options={**_EXTRACTOR, "widening": 2},
        summary="OptEq-Mid without its equilibrium: two stages of Wide-ResNet-50 and its head",
        paper=OPTEQ,
        table="7",
        input_shape=(3, 224, 224),
        chosen=(
            "The paper prints 27M, of which 24M for the extractor; the two stages that end at "
            "28x28x512, as it describes them, have 4.1M.",
        ),
    ),
    Entry(
        name="hrnet_w18_imagenet",
        builder="hrnet:hrnet",
        options={"width": 18, "classes": 1000},
        summary="HRNet-W18 for ImageNet",
        paper=HRNET,
        input_shape=(3, 224, 224),
        printed_parameters="21.3M",
    ),
    Entry(
        name="hrnet_w18_small_imagenet",
        builder="hrnet:hrnet",
        options={
            "width": 16,
            "first": (1, 32),
            "modules": (1, 1, 1),
            "blocks": 2,
            "classes": 1000,
        },
        summary="HRNet-W18-Small for ImageNet",
        paper=HRNET,
        input_shape=(3, 256, 256),
        printed_parameters="13.2M",
    ),
    Entry(
        name="wide_resnet50_imagenet",
        builder="resnet:resnet",
        options={"depth": 50, "stem": "imagenet", "classes": 1000, "widening": 2},
        summary="Wide-ResNet-50-2 for ImageNet",
        paper=WIDE,
        input_shape=(3, 224, 224),
        printed_parameters="68,883,240",
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
        summary="monotone DEQ, one circular convolution",
        paper=MONOTONE,
        table="2",
        printed_parameters="172,218",
    ),
    Entry(
        name="monotone_cifar10_854k",
        builder="monotone:monotone",
        options={"channels": 200},
        summary="monotone DEQ, one wide circular convolution",
        paper=MONOTONE,
        table="2",
        printed_parameters="853,612",
    ),
    Entry(
        name="monotone_tiers_cifar10_170k",
        builder="monotone:monotone_tiers",
        options={"channels": (16, 32, 60)},
        summary="monotone DEQ, three tiers of 40x40, 20x20 and 10x10",
        paper=MONOTONE,
        table="2",
        printed_parameters="170,194",
    ),
    Entry(
        name="monotone_tiers_cifar10_1m",
        builder="monotone:monotone_tiers",
        options={"channels": (64, 128, 128)},
        summary="monotone DEQ, three wide tiers of 40x40, 20x20 and 10x10",
        paper=MONOTONE,
        table="2",
        printed_parameters="1,014,546",
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

_FEED_FORWARD = (
    Entry(
        name="feed_forward_cifar10_199k",
        builder="feed_forward:feed_forward",
        options={"channels": 30, "widths": (16, 32, 64, 64, 104)},
        summary="feed-forward net of five layers, of the size of opteq_cifar10_199k",
        paper=OPTEQ,
        table="3",
        printed_parameters="199k",
        chosen=("Equation 1 with 3x3 convolutions; widths chosen for the printed count.",),
    ),
    Entry(
        name="feed_forward_digits",
        builder="feed_forward:feed_forward",
        options={**DIGITS, "channels": 16, "widths": (16, 24, 32)},
        summary="feed-forward net of three layers for 8x8 digits, of the size of opteq_digits",
        paper=OPTEQ,
        input_shape=DIGIT_SHAPE,
    ),
)

ENTRIES = (*_RESNETS, *_MDEQS, *_MONOTONES, *_ODES, *_TIED, *_FEED_FORWARD)
