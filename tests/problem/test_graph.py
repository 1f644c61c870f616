"""Potentials on graphs: against a dense solve, a grid, and label spreading by scikit-learn."""

from typing import Any, cast

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from sklearn.semi_supervised import LabelSpreading

import opteq
from narrow import tensor
from opteq.errors import OptionError, ShapeError
from opteq.kernels import Conductance, GraphConductance
from opteq.penalties import Free
from opteq.problem import Problem
from opteq.solve import Auto, ConjugateGradients


def layer(network, **options):
    solver = ConjugateGradients(tol=1e-10, **options)
    return opteq.Equilibrium(Problem(penalty=Free(), similarity=network), solver=solver)


def test_on_a_grid_it_is_the_grid():
    torch.manual_seed(0)
    height, width = 4, 5
    u = torch.randn(3, 5, height, width, dtype=torch.float64)
    grid = Conductance(2, leak=0.1).bind(u)
    number = torch.arange(height * width).view(height, width)
    right = torch.stack([number[:, :-1].flatten(), number[:, 1:].flatten()])
    down = torch.stack([number[:-1].flatten(), number[1:].flatten()])
    graph = GraphConductance(torch.cat([right, down], 1), height * width, 2, leak=0.1)
    wires = torch.cat([u[:, 2, :, :-1].flatten(1), u[:, 3, :-1].flatten(1)], 1).exp()
    own = graph.bind(graph.injection(u[:, :2].flatten(2), wires, u[:, 4].flatten(1).exp()))
    z = torch.randn(3, 2, height * width, dtype=torch.float64)
    expected = grid.gradient(z.view(3, 2, height, width))
    torch.testing.assert_close(own.gradient(z), tensor(expected).flatten(2))
    torch.testing.assert_close(own.value(z), grid.value(z.view(3, 2, height, width)))


def test_labels_spread_as_scikit_learn_spreads_them():
    """On its digits, one image in 23 labelled; and the class is found for most others."""
    images, classes = load_digits(return_X_y=True)
    x, y = images[:800], torch.tensor(classes[:800])
    marked = torch.arange(800) % 23 == 0
    given = torch.where(marked, y, -1)
    near = torch.tensor(kneighbors_graph(x, 7).toarray())
    weights = torch.maximum(near, near.T)

    def kernel(*_: Any) -> Any:
        return weights.numpy()

    peer = LabelSpreading(cast(Any, kernel), alpha=0.8, tol=1e-12, max_iter=10_000)
    peer.fit(x, given.numpy())
    edges = weights.triu(1).nonzero().T
    wires = weights[edges[0], edges[1]][None]
    graph = GraphConductance(edges, len(x), 10, leak=1e-12)
    around = torch.zeros(1, len(x), dtype=torch.float64)
    around = around.index_add(1, edges[0], wires).index_add(1, edges[1], wires)
    leaks = 0.25 * around
    labels = torch.nn.functional.one_hot(given.clamp(min=0), 10).double() * marked[:, None]
    sources = 0.2 * labels.T[None] * (leaks + around).sqrt()[:, None]
    found = layer(graph).solve(graph.injection(sources, wires, leaks))
    assert bool(found.converged.all())
    spread = tensor(found.state)[0].T
    spread = spread / spread.sum(1, keepdim=True)
    expected = torch.tensor(peer.label_distributions_)
    torch.testing.assert_close(spread, expected, rtol=0, atol=1e-6)
    assert float((spread.argmax(1) == y)[~marked].double().mean()) > 0.85


def test_couplings_are_learned_through_the_solve():
    """Gradients in wires, sources and leaks against finite differences."""
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 3, 0, 4], [2, 2, 1, 3, 0]])
    graph = GraphConductance(edges, 5, 2, leak=1e-3)
    u = torch.randn(2, 20, dtype=torch.float64, requires_grad=True)
    own, problem = layer(graph), Problem(penalty=Free(), similarity=graph)
    assert torch.autograd.gradcheck(lambda u: own(u), (u,), atol=1e-5)
    auto = opteq.Equilibrium(problem, solver=Auto(tol=1e-10))
    torch.testing.assert_close(auto(u), own(u))


@pytest.mark.parametrize(
    ("edges", "match"),
    [
        (torch.tensor([[0, 1], [1, 7]]), "Number nodes from 0"),
        (torch.tensor([[0, 1], [1, 1]]), "with itself"),
        (torch.tensor([0, 1]), "pairs of nodes"),
    ],
)
def test_edges_that_are_none_are_refused(edges, match):
    with pytest.raises(ShapeError, match=match):
        GraphConductance(edges, 5)
    pair = GraphConductance(torch.tensor([[0], [1]]), 2)
    with pytest.raises(ShapeError, match="injection"):
        pair.bind(torch.zeros(1, 4))
    for wire, leak in ((-1.0, 1.0), (0.0, 1.0), (1.0, 0.0)):
        with pytest.raises(OptionError, match="not above 0"):
            pair.injection(torch.ones(1, 1, 2), torch.full((1, 1), wire), torch.full((1, 2), leak))
