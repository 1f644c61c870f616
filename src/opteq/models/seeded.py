"""Segmentation from a few marked pixels: wires laid by the image carry the marks as far as they
belong together."""

from __future__ import annotations

import math
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.equilibrium.proximal import BoundProximal
from opteq.errors import ShapeError
from opteq.gradient import GradientRule, Implicit
from opteq.kernels import Conductance
from opteq.kernels.conductance import BoundConductance
from opteq.layer import Equilibrium
from opteq.models.network import Network, Output
from opteq.options import one_of, positive, whole
from opteq.penalties import Free
from opteq.problem import Problem
from opteq.solve import ConjugateGradients, Solver

# The conductance that holds a marked pixel at its class; wires have 1 at the most.
_HOLD = 1e3
# Logarithms of leaks: none; the least for a guess, that at the start, and the largest.
_NOTHING, _FAINTEST, _FAINT, _LOUD = -15.0, -8.0, -4.0, 3.0
UNMARKED = 255
"""Stands where no class is marked, as in label maps."""
HOW_MARKED = (
    "In Python: opteq.load(run)(images, marks), marks (batch, height, width) with a class, or "
    f"{UNMARKED} where none is known."
)
"""How a model is used that commands cannot serve, which take images alone."""


class Seeded(Network):
    """A wire between neighbours i and j conducts exp(-|e_i - e_j|^2), e an embedding of each pixel.
    Pixels marked with class k are held at 1 in the k-th potential and at 0 in the others; the
    potentials of every other pixel are the chances that a random walker from there meets a mark of
    that class first (Grady 2006). With colours as embedding this is the random walker of the
    literature, of which one number is learned.

    With a network beside the colours, the wires are learned, and so is a guess at each pixel's
    class: a leak c_i through which the walker may leave, into class k with chance p_ik. Marks and
    guesses then meet where the wires lead, and chances still add up to 1.
    """

    def __init__(self, features: nn.Module | None, layer: Equilibrium, classes: int, beta: float):
        super().__init__()
        self.features, self.layer, self.classes = features, layer, classes
        self.log_beta = nn.Parameter(torch.tensor(math.log(beta)))

    def run(self, x: Tensor, seeds: Tensor | None = None) -> Output:
        """Logits of each pixel's class, from images and a map of marks: classes, and UNMARKED
        (255) where nothing is marked."""
        if seeds is None:
            seeds = torch.full((len(x), *x.shape[2:]), UNMARKED, device=x.device)
        if seeds.shape != (len(x), *x.shape[2:]):
            raise ShapeError(
                f"The marks have shape {tuple(seeds.shape)} for images of {tuple(x.shape)}.",
                "Give (batch, height, width).",
            )
        self._seeds = seeds
        try:
            return super().run(x)
        finally:
            del self._seeds

    def forward(self, x: Tensor, seeds: Tensor | None = None) -> Tensor:
        return self.run(x, seeds).logits

    def compute(self, x: Tensor) -> Output:
        embedded, sources, leaks = self._laid(x)
        right = -(embedded[..., 1:] - embedded[..., :-1]).square().sum(1, keepdim=True)
        down = -(embedded[..., 1:, :] - embedded[..., :-1, :]).square().sum(1, keepdim=True)
        wires = [functional.pad(right, (0, 1)), functional.pad(down, (0, 0, 0, 1))]
        marked = self._seeds != UNMARKED
        known = functional.one_hot(torch.where(marked, self._seeds, 0), self.classes)
        held = _HOLD * known.movedim(-1, 1).to(embedded)
        sources = torch.where(marked[:, None], held, sources)
        leaks = torch.where(marked[:, None], math.log(_HOLD), leaks)
        solution = self.layer.solve(torch.cat([sources, *wires, leaks], 1))
        bound = cast(BoundConductance, cast(BoundProximal, solution.map).problem.similarity)
        chances = bound.potentials(cast(Tensor, solution.state))
        return Output(chances.clamp(min=1e-6).log().to(x.dtype), [solution])

    def _laid(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Embedding, sources and logarithms of leaks, by the image alone."""
        colours = (x * self.pixel_std + self.pixel_mean) * (self.log_beta / 2).exp()
        if self.features is None:
            nothing = x.new_full((len(x), 1, *x.shape[2:]), _NOTHING).double()
            return colours.double(), nothing.new_zeros(()), nothing
        found = self.features(torch.cat([x, _places(x)], 1)).double()
        embedding, guess, leaks = found.split(
            [found.shape[1] - self.classes - 1, self.classes, 1], 1
        )
        leaks = (leaks + _FAINT).clamp(_FAINTEST, _LOUD)
        sources = leaks.exp() * guess.softmax(1)
        return torch.cat([colours.double(), embedding], 1), sources, leaks


def _places(x: Tensor) -> Tensor:
    """Row and column of each pixel, from -1 to 1."""
    rows, columns = (torch.linspace(-1, 1, n, device=x.device, dtype=x.dtype) for n in x.shape[2:])
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    return grid.expand(len(x), -1, -1, -1)


def seeded(
    *,
    channels: int = 24,
    embedding: int = 8,
    learned: bool = True,
    beta: float = 100.0,
    in_channels: int = 3,
    classes: int = 11,
    task: Literal["seeded"] = "seeded",
    leak: float = 1e-7,
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> Seeded:
    """Segmentation from marked pixels. With `learned`, four convolutions with growing reach add an
    `embedding` to the colours, and guesses at classes; without, `beta`, the weight of colours, is
    all that is learned."""
    one_of("task", task, ("seeded",))
    positive("beta", beta)
    features = None
    if learned:
        whole("channels", channels, least=1)
        layers: list[nn.Module] = []
        for width, reach in ((in_channels + 2, 1), (channels, 2), (channels, 4)):
            layers += [
                nn.Conv2d(width, channels, 3, padding=reach, dilation=reach, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
            ]
        layers.append(nn.Conv2d(channels, embedding + classes + 1, 1))
        features = nn.Sequential(*layers)
    gradient = Implicit(tol=1e-4, max_steps=500) if gradient is None else gradient
    solver = gradient.solver_or(solver, ConjugateGradients(tol=1e-5, max_steps=2000))
    problem = Problem(penalty=Free(), similarity=Conductance(classes, leak=leak))
    layer = Equilibrium(problem, solver=solver, gradient=gradient, allow_uncertified=True)
    return Seeded(features, layer, classes, beta)
