"""MDEQ: an implicit multiscale network without a hidden problem (Bai et al., 2020)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from opteq.equilibrium import Cell
from opteq.errors import OptionError
from opteq.gradient import GradientRule, Phantom
from opteq.layer import Equilibrium
from opteq.models.network import Network, Output
from opteq.models.resnet import ResidualBlock, convolution
from opteq.models.stems import Stem
from opteq.solve import Broyden, Solver
from opteq.states import as_tuple

_GROUPS = 4
# The inner convolutions of a block are this many times wider than its scale.
_EXPANSION = 5


class _Branch(nn.Module):
    """A residual block with group norm; the injection enters before its second norm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = _EXPANSION * channels
        self.first, self.second = _conv(channels, inner, 3), _conv(inner, channels, 3)
        self.norms = nn.ModuleList(_norm(width) for width in (inner, channels, channels))

    def forward(self, z: Tensor, u: Tensor | None) -> Tensor:
        inner = self.second(torch.relu(self.norms[0](self.first(z))))
        inner = self.norms[1](inner if u is None else inner + u)
        return self.norms[2](torch.relu(inner + z))


class _Resize(nn.Sequential):
    """From one scale to another: strided 3x3 convolutions down, a 1x1 one and repetition up."""

    def __init__(self, source: int, target: int, channels: tuple[int, ...]) -> None:
        a, b = channels[source], channels[target]
        steps = target - source
        layers: list[nn.Module] = []
        if steps > 0:
            for i in range(steps):
                out = b if i == steps - 1 else a
                layers += [_conv(a, out, 3, stride=2), _norm(out)]
                layers += [nn.ReLU()] if i < steps - 1 else []
        else:
            layers = [_conv(a, b, 1), _norm(b), nn.Upsample(scale_factor=2**-steps)]
        super().__init__(*layers)


class Multiscale(nn.Module):
    """One application of MDEQ: a block at each scale, then full fusion of all scales."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        scales = range(len(channels))
        self.branches = nn.ModuleList(_Branch(width) for width in channels)
        self.resize = nn.ModuleDict(
            {f"{j}_to_{i}": _Resize(j, i, channels) for i in scales for j in scales if i != j}
        )
        self.after = nn.ModuleList(
            nn.Sequential(nn.ReLU(), _conv(width, width, 1), _norm(width)) for width in channels
        )

    def forward(self, z: tuple[Tensor, ...], u: Tensor) -> tuple[Tensor, ...]:
        inner = [
            branch(part, u if i == 0 else None)
            for i, (branch, part) in enumerate(zip(self.branches, z, strict=True))
        ]
        fused = []
        for i in range(len(inner)):
            total = inner[i]
            for j in range(len(inner)):
                if j != i:
                    total = total + self.resize[f"{j}_to_{i}"](inner[j])
            fused.append(self.after[i](total))
        return tuple(fused)


class _Head(nn.Module):
    """Each scale widened by a bottleneck and added to what comes down from the finer ones."""

    def __init__(
        self, channels: tuple[int, ...], head: tuple[int, ...], final: int, classes: int
    ) -> None:
        super().__init__()
        wide = [4 * h for h in head]
        self.widen = nn.ModuleList(
            ResidualBlock(c, 4 * h, h, bottleneck=True, stride=1, dilation=1)
            for c, h in zip(channels, head, strict=True)
        )
        self.down = nn.ModuleList(
            nn.Sequential(*convolution(a, b, 3, 2), nn.ReLU()) for a, b in pairwise(wide)
        )
        self.last = nn.Sequential(*convolution(wide[-1], final, 1), nn.ReLU())
        self.classify = nn.Linear(final, classes)

    def forward(self, parts: tuple[Tensor, ...]) -> Tensor:
        y = self.widen[0](parts[0])
        for down, widen, part in zip(self.down, self.widen[1:], parts[1:], strict=True):
            y = widen(part) + down(y)
        return self.classify(self.last(y).mean((2, 3)))


class MDEQ(Network):
    """Stem, equilibrium over all scales, head."""

    def __init__(self, stem: nn.Module, layer: Equilibrium, head: nn.Module) -> None:
        super().__init__()
        self.stem, self.layer, self.head = stem, layer, head

    def compute(self, x: Tensor) -> Output:
        solution = self.layer.solve(self.stem(x))
        return Output(self.head(as_tuple(solution.state)), [solution])


def mdeq(
    *,
    channels: tuple[int, ...],
    head: tuple[int, ...],
    final: int,
    side: int,
    in_channels: int = 3,
    classes: int = 10,
    reductions: int = 0,
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> MDEQ:
    """Scales at `side`, `side` / 2, ... with a residual block each and full fusion.

    Nothing makes the cell contract, and solves often end at a residual of 1e-2, as in the paper;
    phantom gradients do not need more.
    """
    if len(head) != len(channels):
        raise OptionError(
            f"{len(head)} head widths for {len(channels)} scales.", "Give one for each scale."
        )
    if side % 2 ** (len(channels) - 1):
        raise OptionError(
            f"A side of {side} cannot be halved {len(channels) - 1} times.",
            "Give a multiple of a higher power of 2, or fewer scales.",
        )

    def start(u: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            u.new_zeros(len(u), width, u.shape[-2] >> i, u.shape[-1] >> i)
            for i, width in enumerate(channels)
        )

    gradient = Phantom(steps=5, damping=0.5) if gradient is None else gradient
    solver = gradient.solver_or(solver, Broyden(tol=1e-2, max_steps=30))
    layer = Equilibrium(
        Cell(Multiscale(channels), start=start),
        solver=solver,
        gradient=gradient,
    )
    stem = Stem(in_channels, channels[0], reductions=reductions)
    return MDEQ(stem, layer, _Head(channels, head, final, classes))


def _conv(a: int, b: int, size: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(a, b, size, stride=stride, padding=size // 2, bias=False)
    nn.init.normal_(layer.weight, std=0.01)
    return layer


def _norm(channels: int) -> nn.GroupNorm:
    groups = next(g for g in (_GROUPS, 2, 1) if channels % g == 0)
    return nn.GroupNorm(groups, channels)
