"""Ten labels for 1,437 digits: one of each class, spread over a graph of neighbours by solving for
the potentials of its nodes.

The same problem, with sources at the labelled nodes and a wire for each pair of similar images, is
the label spreading of the literature; here it is one equilibrium layer.

    python examples/spread_labels.py --output spread_labels.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import opteq
from opteq.data import load_data
from opteq.data.splits import sample
from opteq.exhibits import Curves, Series
from opteq.kernels import GraphConductance
from opteq.penalties import Free
from opteq.problem import Problem
from opteq.report.pictures import write_picture
from opteq.solve import ConjugateGradients


def neighbours(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """An edge between each image and its nearest ones, and how similar they are."""
    distance = torch.cdist(x, x)
    near, whose = distance.topk(count + 1, largest=False)
    first = torch.arange(len(x)).repeat_interleave(count)
    pairs = torch.stack([first, whose[:, 1:].flatten()])
    low, high = pairs.amin(0), pairs.amax(0)
    edges, place = torch.unique(torch.stack([low, high]), dim=1, return_inverse=True)
    width = near[:, 1:].median()
    likeness = torch.exp(-0.5 * (near[:, 1:].flatten() / width).square())
    return edges, torch.zeros(edges.shape[1]).scatter_reduce(0, place, likeness, "amax")


def spread(edges: Tensor, wires: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """The class of every node, from the labels at `known`."""
    nodes = len(labels)
    graph = GraphConductance(edges, nodes=nodes, channels=10, leak=1e-6)
    layer = opteq.Equilibrium(
        Problem(penalty=Free(), similarity=graph),
        solver=ConjugateGradients(tol=1e-4, max_steps=2000),
    )
    sources = torch.zeros(1, 10, nodes)
    sources[0, labels[known], known] = 1.0
    leaks = torch.full((1, nodes), 1e-2)
    u = graph.injection(sources, wires[None], leaks)
    with torch.no_grad():
        solution = layer.solve(u)
    assert solution.converged.all()
    return graph.bind(u).potentials(solution.state)[0].argmax(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("spread_labels.png"))
    parser.add_argument("--draws", type=int, default=10, help="of the labelled images")
    parser.add_argument("--images", type=int, default=1437)
    options = parser.parse_args()
    images, labels = sample(load_data("digits").train, options.images)
    x = images.flatten(1).float() / 255
    edges, wires = neighbours(x, 8)
    found: dict[str, dict[int, list[float]]] = {
        "spread by solving": {},
        "nearest labelled image": {},
    }
    for each in (1, 2, 4, 8):
        for seed in range(options.draws):
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
            places = [order[labels[order] == digit][:each] for digit in range(10)]
            known = torch.cat(places)
            rest = torch.ones(len(x), dtype=torch.bool)
            rest[known] = False
            answers = {
                "spread by solving": spread(edges, wires, labels, known),
                "nearest labelled image": labels[known][torch.cdist(x, x[known]).argmin(1)],
            }
            for name, answer in answers.items():
                right = (answer == labels)[rest].double().mean()
                found[name].setdefault(10 * each, []).append(100 * float(right))
        for name, scores in found.items():
            print(f"{10 * each} labels, {name}: {np.mean(scores[10 * each]):.1f}% of the others")
    series = {
        name: Series(
            list(scores),
            [float(np.mean(v)) for v in scores.values()],
            [float(np.std(v)) for v in scores.values()],
        )
        for name, scores in found.items()
    }
    title = f"Digits labelled from a few, {options.draws} draws"
    write_picture(Curves(title, "labelled images", "right, %", series), options.output)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
