"""The explicit networks that the papers compare with."""

from __future__ import annotations

from opteq.models.catalogue.entry import DIGIT_SHAPE, DIGITS, Entry

RESNET = "Deep Residual Learning for Image Recognition (He et al., 2016)"
WIDE = "Wide Residual Networks (Zagoruyko and Komodakis, 2016)"
HRNET = "Deep High-Resolution Representation Learning for Visual Recognition (Wang et al., 2019)"
FCN = "Fully Convolutional Networks for Semantic Segmentation (Long et al., 2015)"
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
        summary="A narrow ResNet-18 for 8x8 digits",
        paper=RESNET,
        input_shape=DIGIT_SHAPE,
    ),
    Entry(
        name="resnet_tiny",
        builder="resnet:resnet",
        options={"depth": 18, "width": 6},
        summary="A narrow ResNet-18 for 32x32 images that trains on a laptop",
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
        summary="A narrow ResNet-18 with an FCN head for small road scenes",
        paper=FCN,
        input_shape=(3, 24, 32),
    ),
)

_TIED = (
    Entry(
        name="tied_cifar10",
        builder="tied:weight_tied",
        options={"channels": 132},
        summary="Weight-tied feed-forward net of ten layers, about the size of opteq_cifar10_162k",
        paper=TIED,
        chosen=("One free 3x3 convolution used ten times, with the input added each time.",),
    ),
    Entry(
        name="tied_digits",
        builder="tied:weight_tied",
        options={**DIGITS, "channels": 32},
        summary="Weight-tied feed-forward net of ten layers for 8x8 digits",
        paper=TIED,
        input_shape=DIGIT_SHAPE,
    ),
)

_FEED_FORWARD = (
    Entry(
        name="feed_forward_cifar10_199k",
        builder="feed_forward:feed_forward",
        options={"channels": 30, "widths": (16, 32, 64, 64, 104)},
        summary="Feed-forward net of five layers, of the size of opteq_cifar10_199k",
        paper=OPTEQ,
        table="3",
        printed_parameters="199k",
        chosen=("Equation 1 with 3x3 convolutions; widths chosen for the printed count.",),
    ),
    Entry(
        name="feed_forward_digits",
        builder="feed_forward:feed_forward",
        options={**DIGITS, "channels": 16, "widths": (16, 24, 32)},
        summary="Feed-forward net of three layers for 8x8 digits, of the size of opteq_digits",
        paper=OPTEQ,
        input_shape=DIGIT_SHAPE,
    ),
)

ENTRIES = (*_RESNETS, *_TIED, *_FEED_FORWARD)
