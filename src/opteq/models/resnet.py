"""ResNet, the explicit baseline of every comparison."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from opteq.models.classifier import Network, Output
from opteq.options import one_of


class _Block(nn.Module):
    """Convolutions with batch norm, and a skip connection that is projected where shapes change."""

    def __init__(self, inner: nn.Sequential, skip: nn.Module) -> None:
        super().__init__()
        self.inner, self.skip = inner, skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.skip(x))


class ResNet(Network):
    """Stem, four stages of blocks, average pooling, linear head."""

    def __init__(
        self,
        blocks: tuple[int, ...],
        *,
        bottleneck: bool,
        stem: Literal["cifar", "imagenet"],
        in_channels: int,
        classes: int,
        width: int,
    ) -> None:
        super().__init__()
        one_of("stem", stem, ("cifar", "imagenet"))
        if stem == "cifar":
            layers = [*_convolution(in_channels, width, 3), nn.ReLU()]
        else:
            layers = [*_convolution(in_channels, width, 7, 2), nn.ReLU()]
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        channels = width
        for stage, count in enumerate(blocks):
            inner = width * 2**stage
            for index in range(count):
                stride = 2 if stage and index == 0 else 1
                block = _block(channels, inner, stride, bottleneck=bottleneck)
                layers.append(block)
                channels = 4 * inner if bottleneck else inner
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def compute(self, x: Tensor) -> Output:
        return Output(self.head(self.features(x).mean((2, 3))), [])


def resnet(
    *,
    depth: Literal[18, 50] = 18,
    stem: Literal["cifar", "imagenet"] = "cifar",
    in_channels: int = 3,
    classes: int = 10,
    width: int = 64,
) -> ResNet:
    """ResNet-18 or ResNet-50, with the 3x3 stem for small images or the 7x7 one for ImageNet."""
    one_of("depth", str(depth), ("18", "50"))
    blocks, bottleneck = ((2, 2, 2, 2), False) if depth == 18 else ((3, 4, 6, 3), True)
    return ResNet(
        blocks,
        bottleneck=bottleneck,
        stem=stem,
        in_channels=in_channels,
        classes=classes,
        width=width,
    )


def _convolution(a: int, b: int, size: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(a, b, size, stride=stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(b)]


def _block(channels: int, inner: int, stride: int, *, bottleneck: bool) -> _Block:
    out = 4 * inner if bottleneck else inner
    if bottleneck:
        layers = [
            *_convolution(channels, inner, 1),
            nn.ReLU(),
            *_convolution(inner, inner, 3, stride),
            nn.ReLU(),
            *_convolution(inner, out, 1),
        ]
    else:
        layers = [
            *_convolution(channels, inner, 3, stride),
            nn.ReLU(),
            *_convolution(inner, out, 3),
        ]
    same = stride == 1 and channels == out
    skip = nn.Identity() if same else nn.Sequential(*_convolution(channels, out, 1, stride))
    return _Block(nn.Sequential(*layers), skip)
