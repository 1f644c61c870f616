"""ResNet, the explicit baseline of every comparison, and its first stages as an extractor."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from opteq.errors import OptionError
from opteq.models.heads import ConvolutionHead, FCNHead, PooledHead
from opteq.models.network import Network, Output
from opteq.options import one_of, whole

ResNetStem = Literal["cifar", "imagenet"]
Depth = Literal[18, 34, 50, 101]
# Blocks of each stage.
_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


class ResidualBlock(nn.Module):
    """Convolutions with batch norm, and a skip connection that is projected where shapes change."""

    def __init__(
        self, channels: int, out: int, inner: int, *, bottleneck: bool, stride: int, dilation: int
    ) -> None:
        super().__init__()
        if bottleneck:
            layers = [
                *convolution(channels, inner, 1),
                nn.ReLU(),
                *convolution(inner, inner, 3, stride, dilation),
                nn.ReLU(),
                *convolution(inner, out, 1),
            ]
        else:
            layers = [
                *convolution(channels, inner, 3, stride, dilation),
                nn.ReLU(),
                *convolution(inner, out, 3, 1, dilation),
            ]
        self.inner = nn.Sequential(*layers)
        same = stride == 1 and channels == out
        self.skip = nn.Identity() if same else nn.Sequential(*convolution(channels, out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.skip(x))


class ResNetFeatures(nn.Sequential):
    """The stem and the first `stages` stages; `out_channels` counts the output channels.

    `widening` multiplies the inner channels of bottlenecks (Wide-ResNet-50-2 has 2). `dilated`
    keeps the last two of four stages at the size of the second, with dilated convolutions.
    """

    def __init__(
        self,
        depth: int,
        *,
        stem: ResNetStem,
        in_channels: int = 3,
        width: int = 64,
        widening: int = 1,
        stages: int = 4,
        dilated: bool = False,
    ) -> None:
        one_of("stem", stem, ("cifar", "imagenet"))
        one_of("depth", str(depth), tuple(str(known) for known in _BLOCKS))
        bottleneck = depth >= 50
        if widening != 1 and not bottleneck:
            raise OptionError(
                f"widening is for bottlenecks, and depth {depth} has none.",
                "Give depth=50, or a width.",
            )
        if stem == "cifar":
            layers = [*convolution(in_channels, width, 3), nn.ReLU()]
        else:
            layers = [*convolution(in_channels, width, 7, 2), nn.ReLU()]
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        channels = width
        for stage, count in enumerate(_BLOCKS[depth][: whole("stages", stages, least=1)]):
            base = width * 2**stage
            out, inner = (4 * base, base * widening) if bottleneck else (base, base)
            keep = dilated and stage >= 2
            for index in range(count):
                block = ResidualBlock(
                    channels,
                    out,
                    inner,
                    bottleneck=bottleneck,
                    stride=2 if stage and index == 0 and not keep else 1,
                    dilation=2 ** (stage - 1) if keep else 1,
                )
                layers.append(block)
                channels = out
        super().__init__(*layers)
        self.out_channels = channels


class ResNet(Network):
    """Features and a head."""

    def __init__(self, features: ResNetFeatures, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def compute(self, x: Tensor) -> Output:
        features = self.features(x)
        if isinstance(self.head, FCNHead):
            return Output(self.head(features, x.shape[-2:]), [])
        return Output(self.head(features), [])


def resnet(
    *,
    depth: Depth = 18,
    stem: ResNetStem = "cifar",
    in_channels: int = 3,
    classes: int = 10,
    width: int = 64,
    widening: int = 1,
    stages: int = 4,
    task: Literal["classification", "segmentation"] = "classification",
    dilated: bool = False,
    head: Literal["pooled", "convolutions"] = "pooled",
    head_grid: int = 1,
) -> ResNet:
    """A ResNet, or a Wide-ResNet by `widening`, with the 3x3 stem for small images or the 7x7 one
    for ImageNet; the first `stages` of its four. For `task="segmentation"` an FCN head gives a
    class for each pixel; otherwise the pooled head sees the mean of each of `head_grid` x
    `head_grid` parts of the image, and "convolutions" is the head of OptEq on ImageNet."""
    one_of("task", task, ("classification", "segmentation"))
    one_of("head", head, ("pooled", "convolutions"))
    features = ResNetFeatures(
        depth,
        stem=stem,
        in_channels=in_channels,
        width=width,
        widening=widening,
        stages=stages,
        dilated=dilated,
    )
    if task == "segmentation":
        return ResNet(features, FCNHead(features.out_channels, classes))
    if head == "convolutions":
        return ResNet(features, ConvolutionHead(features.out_channels, classes))
    return ResNet(features, PooledHead(features.out_channels, classes, head_grid))


def convolution(
    a: int, b: int, size: int, stride: int = 1, dilation: int = 1, *, bias: bool = False
) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """A convolution that keeps the size (except for its stride), and batch norm."""
    padding = size // 2 * dilation
    layer = nn.Conv2d(a, b, size, stride, padding, dilation=dilation, bias=bias)
    return layer, nn.BatchNorm2d(b)
