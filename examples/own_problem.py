"""A network from a problem of one's own: the similarity is five lines, the rest is the library's.

Two moons with labels, a tenth of which are wrong. The layer is the minimiser of

    1'f(z) + 1/2 |z|^2 + 1/2 log(1 + |u - Wz|^2),        z not negative:

what fits badly pulls less. The picture shows where it draws the line, and how residual and
objective fall for some of the points while they are solved.

    python examples/own_problem.py --output own_problem.png
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import opteq
from opteq.operators import Dense
from opteq.penalties import NonNegative
from opteq.problem import Problem, Similarity
from opteq.report.page import ACCENT, SECOND, logarithmic, new_figure, png


class Cauchy(Similarity):
    """S(z; u) = -1/2 log(1 + |u - Wz|^2)."""

    def __init__(self, W: Dense) -> None:
        super().__init__()
        self.W = W

    def value(self, z: Tensor, u: Tensor) -> Tensor:
        return -0.5 * torch.log1p((u - self.W(z)).square().sum(1))


def moons(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two half circles, one inside the other, and their labels."""
    angle = math.pi * torch.rand(count, generator=generator)
    label = torch.arange(count) % 2
    side = 1.0 - 2.0 * label
    points = torch.stack([side * angle.cos() + label, side * angle.sin() + 0.5 * label], 1)
    return points + 0.12 * torch.randn(count, 2, generator=generator), label


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("own_problem.png"))
    parser.add_argument("--steps", type=int, default=200, help="of training")
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)

    x, truth = moons(400, generator)
    wrong = torch.rand(400, generator=generator) < 0.1
    labels = torch.where(wrong, 1 - truth, truth)

    problem = Problem(penalty=NonNegative(), similarity=Cauchy(Dense(32, 16, norm_bound=0.95)))
    layer = opteq.Equilibrium(problem)
    net = nn.Sequential(nn.Linear(2, 16), layer, nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=1e-2)
    for step in range(1, options.steps + 1):
        loss = functional.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    new, clean = moons(1000, generator)
    with torch.no_grad():
        accuracy = (net(new).argmax(1) == clean).double().mean()
        solution = layer.solve(net[0](new), trace=True)
    assert solution.converged.all()
    print(f"{100 * accuracy:.1f}% of 1,000 new points are right")
    _draw(net, x, labels, solution, options.output)
    print(f"picture: {options.output}")


def _draw(
    net: nn.Module, x: Tensor, labels: Tensor, solution: opteq.solve.Solution, path: Path
) -> None:
    figure, ((left, middle, right),) = new_figure(11, 3.4, columns=3)
    across, up = torch.meshgrid(
        torch.linspace(-1.6, 2.6, 120), torch.linspace(-1.2, 1.7, 90), indexing="xy"
    )
    with torch.no_grad():
        chance = net(torch.stack([across, up], 2).flatten(0, 1)).softmax(1)[:, 1].view_as(across)
    left.contourf(across, up, chance, levels=12, cmap="RdBu_r", alpha=0.6, vmin=0, vmax=1)
    for label, colour in ((0, ACCENT), (1, SECOND)):
        left.scatter(*x[labels == label].T, s=6, color=colour)
    left.set_title("What it learnt, a tenth of the labels wrong", fontsize=9, loc="left")
    trace = solution.trace
    assert trace is not None
    assert trace.objective is not None
    steps = range(1, len(trace.residual) + 1)
    middle.plot(steps, trace.residual[:, :40], color=ACCENT, alpha=0.3, lw=1)
    middle.set_title("Residual of 40 points", fontsize=9, loc="left")
    height = trace.objective[:, :40].double()
    height = height - height.nan_to_num(math.inf).amin(0)
    right.plot(steps, height.where(height > 0, math.nan), color=SECOND, alpha=0.3, lw=1)
    right.set_title("Their objective, above its minimum", fontsize=9, loc="left")
    for axis in (middle, right):
        axis.set_xlabel("evaluations of the map")
        logarithmic(axis.yaxis)
    path.write_bytes(png(figure))


if __name__ == "__main__":
    main()
