"""HRNet for classification (Wang et al., 2019), an explicit baseline of several scales."""

from __future__ import annotations

from torch import Tensor, nn

from opteq.models.multiscale import MultiscaleHead, fused, resizes
from opteq.models.network import Network, Output
from opteq.models.resnet import ResidualBlock, convolution

# Channels of the stem.
_STEM = 64


class _Module(nn.Module):
    """Residual blocks at each scale, then full fusion."""

    def __init__(self, channels: tuple[int, ...], blocks: int) -> None:
        super().__init__()
        self.scales = nn.ModuleList(
            nn.Sequential(*(_basic(width) for _ in range(blocks))) for width in channels
        )
        self.resize = resizes(channels, _convolve, nn.BatchNorm2d)

    def forward(self, parts: list[Tensor]) -> list[Tensor]:
        inner = [scale(part) for scale, part in zip(self.scales, parts, strict=True)]
        return [part.relu() for part in fused(inner, self.resize)]


class HRNet(Network):
    """Four stages; each adds a scale of half the size to those it has, and all stay to the end."""

    def __init__(
        self,
        width: int,
        first: tuple[int, int],
        modules: tuple[int, ...],
        blocks: int,
        head: tuple[int, ...],
        final: int,
        in_channels: int,
        classes: int,
    ) -> None:
        super().__init__()
        widths = tuple(width * 2**i for i in range(len(modules) + 1))
        count, inner = first
        wide = 4 * inner
        self.stem = nn.Sequential(
            *convolution(in_channels, _STEM, 3, 2),
            nn.ReLU(),
            *convolution(_STEM, _STEM, 3, 2),
            nn.ReLU(),
            *(
                ResidualBlock(a, wide, inner, bottleneck=True, stride=1, dilation=1)
                for a in (_STEM, *[wide] * (count - 1))
            ),
        )
        self.enter = nn.Sequential(*convolution(wide, widths[0], 3), nn.ReLU())
        # The coarsest scale so far makes the next one.
        self.add = nn.ModuleList(
            nn.Sequential(*convolution(a, b, 3, 2), nn.ReLU())
            for a, b in zip((wide, *widths[1:-1]), widths[1:], strict=True)
        )
        self.stages = nn.ModuleList(
            nn.Sequential(*(_Module(widths[: i + 2], blocks) for _ in range(count)))
            for i, count in enumerate(modules)
        )
        self.head = MultiscaleHead(widths, head[: len(widths)], final, classes, bias=True)

    def compute(self, x: Tensor) -> Output:
        features = self.stem(x)
        parts = [self.enter(features)]
        for i, (add, stage) in enumerate(zip(self.add, self.stages, strict=True)):
            parts = stage([*parts, add(features if i == 0 else parts[-1])])
        return Output(self.head(parts), [])


def hrnet(
    *,
    width: int = 18,
    first: tuple[int, int] = (4, 64),
    modules: tuple[int, ...] = (1, 4, 3),
    blocks: int = 4,
    head: tuple[int, ...] = (32, 64, 128, 256),
    final: int = 2048,
    in_channels: int = 3,
    classes: int = 1000,
) -> HRNet:
    """HRNet-W`width`: scales of `width`, 2 `width`, 4 `width` and 8 `width` channels. The first
    stage has so many bottlenecks of so many channels; each later one adds a scale and has so many
    `modules`, in which every scale has `blocks` residual blocks before all are fused. `head` are
    the channels of its bottlenecks, `final` those of its last layer."""
    return HRNet(width, first, modules, blocks, head, final, in_channels, classes)


def _basic(channels: int) -> ResidualBlock:
    return ResidualBlock(channels, channels, channels, bottleneck=False, stride=1, dilation=1)


def _convolve(a: int, b: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(a, b, size, stride, size // 2, bias=False)
