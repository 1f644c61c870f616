"""Solve one GEQ problem on real digits and draw what happened.

The stem is the image itself, shifted into the channels of the injection; nothing is trained. The
picture shows the hidden objective and the residual falling for each solver, and the gates: where
the equilibrium explains the injection and where it does not.

    python examples/solve_digits.py --output digits.png
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from sklearn.datasets import load_digits
from torch import Tensor

import opteq
from opteq.operators import Conv2d, PatchProjection
from opteq.problem import NonNegative, PatchGaussian, Problem
from opteq.solve import Anderson, Broyden, ForwardBackward, Picard, Solution

SOLVERS = [
    Picard(tol=1e-10, max_steps=60, on_failure="ignore"),
    Anderson(tol=1e-10, max_steps=60, on_failure="ignore"),
    Broyden(tol=1e-10, max_steps=60, on_failure="ignore"),
    ForwardBackward(tol=1e-10, max_steps=60, on_failure="ignore"),
]
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
INK, GREY = "#222222", "#767676"


def digits(count: int) -> Tensor:
    """One image of each class first: (count, 1, 8, 8) in [0, 1], float64."""
    data = load_digits()
    labels = torch.from_numpy(data.target)
    first = torch.stack([(labels == label).nonzero()[0, 0] for label in range(10)])
    rest = torch.arange(len(labels))[~torch.isin(torch.arange(len(labels)), first)]
    chosen = torch.cat((first, rest))[:count]
    return torch.from_numpy(data.images)[chosen, None] / 16


def inject(images: Tensor, channels: int) -> Tensor:
    """u = U x with a fixed random convolution, its channels of unit spread."""
    kernel = torch.randn(channels, 1, 3, 3, dtype=images.dtype)
    u = torch.nn.functional.conv2d(images, kernel, padding=1)
    return u / u.std(dim=(0, 2, 3), keepdim=True)


def build(gamma: float) -> Problem:
    """GEQ with patches of 2 channels x 2 x 2 [GEQ equation 16]."""
    return Problem(
        penalty=NonNegative(),
        similarity=PatchGaussian(
            Conv2d(16, 8, norm_bound=0.98, image_size=8),
            PatchProjection(patch=2, split=2, hidden=8),
            gamma=gamma,
        ),
    ).double()


def draw(
    images: Tensor, gates: Tensor, solutions: list[Solution], best: Tensor, path: Path
) -> None:
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure = plt.figure(figsize=(11, 6.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.45, 1])
    left, right = top.subplots(1, 2)
    for color, solution in zip(COLORS, solutions, strict=True):
        trace = solution.trace
        assert trace is not None
        assert trace.objective is not None
        # The mean over samples of what is left; samples that are done count as zero.
        excess = (trace.objective - best).clamp(min=0).nan_to_num(0).mean(1)
        residual = trace.residual.nan_to_num(0).amax(1)
        steps = range(1, len(residual) + 1)
        left.semilogy(steps, excess.clamp(min=1e-16), color=color, lw=1.8)
        right.semilogy(steps, residual.clamp(min=1e-16), color=color, lw=1.8)
    left.set_ylim(1e-13, None)  # below, the objective is rounding error
    right.set_ylim(1e-10, None)
    left.set_title("Hidden objective above its minimum", loc="left", color=INK)
    right.set_title("Residual |T(z) - z| / |T(z)|, worst sample", loc="left", color=INK)
    for axes in (left, right):
        axes.set_xlabel("evaluations of the map")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25, lw=0.6)
    names = [
        Line2D([], [], color=color, lw=1.8, label=type(solver).__name__)
        for solver, color in zip(SOLVERS, COLORS, strict=True)
    ]
    right.legend(handles=names, frameon=False, loc="upper right")
    top.suptitle(
        f"One GEQ problem, {len(images)} digits: what each solver does with it",
        fontsize=13,
        color=INK,
    )

    panels = bottom.subplots(2, 10)
    shown = gates.mean(1)
    for column in range(10):
        panels[0, column].imshow(images[column, 0], cmap="gray_r", interpolation="nearest")
        picture = panels[1, column].imshow(
            shown[column], cmap="viridis", vmin=0, vmax=1, interpolation="nearest"
        )
    for axes in panels.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(True)
            spine.set_color("#cccccc")
    panels[0, 0].set_ylabel("digit", color=GREY)
    panels[1, 0].set_ylabel("gates", color=GREY)
    bar = bottom.colorbar(picture, ax=panels[1, :], fraction=0.02, pad=0.01)
    bar.set_label("mean gate", color=GREY)
    bottom.supxlabel(
        "A gate is exp(-gamma |residual|^2) of a patch: near 1 where the equilibrium explains the "
        "injection, near 0 where it gives up.",
        fontsize=9,
        color=GREY,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("solve_digits.png"))
    parser.add_argument("--count", type=int, default=100, help="digits to solve at once (>= 10)")
    parser.add_argument("--gamma", type=float, default=0.05, help="inverse width of the kernel")
    arguments = parser.parse_args()
    if arguments.count < 10:
        parser.error("--count must be at least 10, one for each class.")

    torch.manual_seed(0)
    images = digits(arguments.count)
    problem = build(arguments.gamma)
    u = inject(images, 8)
    print("G(z; u) = 1'f(z) + |z|^2/2 - S(z; u),  f: z >= 0,  S: Gaussian kernel over patches")
    solutions = []
    with torch.no_grad():
        for solver in SOLVERS:
            layer = opteq.Equilibrium(problem, solver=solver)
            start = time.perf_counter()
            solution = layer.solve(u, trace=True)
            seconds = time.perf_counter() - start
            solutions.append(solution)
            print(
                f"{type(solver).__name__:>16}: {int(solution.converged.sum())} of {len(u)} "
                f"converged, {solution.steps.double().mean():.1f} steps on average, "
                f"{int(solution.steps.max())} at most, {1000 * seconds:.0f} ms"
            )
        equilibrium = solutions[1].state
        assert isinstance(equilibrium, Tensor)
        best = torch.stack([problem.objective(s.state, u) for s in solutions]).amin(0)  # type: ignore
        gates = problem.similarity.gates(equilibrium, u)  # type: ignore[operator]
    draw(images, gates, solutions, best, arguments.output)
    print(f"picture: {arguments.output}")


if __name__ == "__main__":
    main()
