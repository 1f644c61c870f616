"""What networks of several scales share: MDEQ's cell is a block of HRNet."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

from opteq.models.resnet import ResidualBlock, convolution

Convolution = Callable[[int, int, int, int], nn.Module]
"""(channels, out, size, stride) -> a convolution that keeps the size, except for its stride."""
Norm = Callable[[int], nn.Module]


class Resize(nn.Sequential):
    """From one scale to another: strided 3x3 convolutions down, a 1x1 one and repetition up."""

    def __init__(
        self,
        source: int,
        target: int,
        channels: tuple[int, ...],
        convolve: Convolution,
        norm: Norm,
    ) -> None:
        a, b = channels[source], channels[target]
        steps = target - source
        layers: list[nn.Module] = []
        if steps > 0:
            for i in range(steps):
                out = b if i == steps - 1 else a
                layers += [convolve(a, out, 3, 2), norm(out)]
                layers += [nn.ReLU()] if i < steps - 1 else []
        else:
            layers = [convolve(a, b, 1, 1), norm(b), nn.Upsample(scale_factor=2**-steps)]
        super().__init__(*layers)


def resizes(channels: tuple[int, ...], convolve: Convolution, norm: Norm) -> nn.ModuleDict:
    """From every scale to every other: "0_to_1", ..."""
    scales = range(len(channels))
    return nn.ModuleDict(
        {
            f"{j}_to_{i}": Resize(j, i, channels, convolve, norm)
            for i in scales
            for j in scales
            if i != j
        }
    )


def fused(parts: list[Tensor], resize: nn.ModuleDict) -> list[Tensor]:
    """Every scale plus all others, brought to it."""
    totals = []
    for i, total in enumerate(parts):
        for j, part in enumerate(parts):
            if j != i:
                total = total + resize[f"{j}_to_{i}"](part)
        totals.append(total)
    return totals


class MultiscaleHead(nn.Module):
    """Each scale widened by a bottleneck and added to what comes down from the finer ones; the
    mean, a linear map."""

    def __init__(
        self,
        channels: tuple[int, ...],
        head: tuple[int, ...],
        final: int,
        classes: int,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        wide = [4 * h for h in head]
        self.widen = nn.ModuleList(
            ResidualBlock(c, 4 * h, h, bottleneck=True, stride=1, dilation=1)
            for c, h in zip(channels, head, strict=True)
        )
        self.down = nn.ModuleList(
            nn.Sequential(*convolution(a, b, 3, 2, bias=bias), nn.ReLU()) for a, b in pairwise(wide)
        )
        self.last = nn.Sequential(*convolution(wide[-1], final, 1, bias=bias), nn.ReLU())
        self.classify = nn.Linear(final, classes)

    def forward(self, parts: tuple[Tensor, ...] | list[Tensor]) -> Tensor:
        y = self.widen[0](parts[0])
        for down, widen, part in zip(self.down, self.widen[1:], parts[1:], strict=True):
            y = widen(part) + down(y)
        return self.classify(self.last(y).mean((2, 3)))
