"""Feature regularizers: values, gradients, proxes, and their place inside a map."""

import math

import numpy as np
import pytest
import torch

import opteq
from narrow import a, known, tensor
from opteq.equilibrium import Chain, Unit
from opteq.errors import OptionError, ShapeError, UnknownOptionError
from opteq.gradient import Unrolled
from opteq.operators import Conv2d, Dense
from opteq.problem import HSIC, AbsoluteNorm, Decorrelation, Incay, InsideMap, SquaredNorm
from opteq.solve import SAM, Anderson

REGULARIZERS = {
    "square": SquaredNorm,
    "absolute": AbsoluteNorm,
    "incay": lambda: Incay(0.5),
    "decorrelation": Decorrelation,
    "decorrelation over batch": lambda: Decorrelation("batch"),
    "hsic": lambda: HSIC(width=0.7),
    "hsic over batch": lambda: HSIC("batch"),
    "hsic by cosines": lambda: HSIC(width=0.7, frequencies=3),
}
Z = torch.randn(4, 3, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", REGULARIZERS)
def test_gradient_is_that_of_the_value(name):
    regularizer = REGULARIZERS[name]()
    leaf = Z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(regularizer.value(leaf).sum(), leaf)
    torch.testing.assert_close(regularizer.gradient(Z), slope, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", REGULARIZERS)
def test_samples_are_compared_only_where_it_says_so(name):
    regularizer = REGULARIZERS[name]()
    alone = regularizer.gradient(Z[:1])
    together = regularizer.gradient(Z)[:1]
    assert regularizer.compares_samples is not torch.allclose(alone, together)


@pytest.mark.parametrize("name", ["square", "absolute"])
def test_prox_minimises(name):
    regularizer = REGULARIZERS[name]()
    x = regularizer.prox(Z, 0.4)
    least = 0.4 * regularizer.value(x) + (x - Z).square().flatten(1).sum(1) / 2
    for _ in range(50):
        other = x + 0.1 * torch.randn_like(x)
        there = 0.4 * regularizer.value(other) + (other - Z).square().flatten(1).sum(1) / 2
        assert (there > least).all()


def test_incay_step_enlarges_features():
    """A gradient step multiplies z by 1 + 4 weight / (|z|^2 + 2 eps)^2; the paper's table has -."""
    moved = InsideMap(Incay(0.5), weight=0.3)(Z)
    factor = 1 + 4 * 0.3 / (Z.square().flatten(1).sum(1) + 1.0).square()
    torch.testing.assert_close(moved, factor.view(-1, 1, 1, 1) * Z)
    assert (factor > 1).all()


def test_decorrelation_is_the_papers_matrix_norm():
    rows = Z.transpose(0, 1).flatten(1)
    D = torch.diag(1 / rows.norm(dim=1))
    expected = (D @ rows @ rows.T @ D - torch.eye(3, dtype=torch.float64)).square().sum() / 2
    torch.testing.assert_close(Decorrelation("batch").value(Z)[0], expected)


def test_hsic_is_the_trace_formula():
    rows = Z[0].flatten(1).numpy()
    n = rows.shape[1]
    H = np.eye(n) - np.ones((n, n)) / n
    kernels = [np.exp(-((r[:, None] - r[None]) ** 2) / (2 * 0.7**2)) for r in rows]
    expected = sum(
        np.trace(kernels[i] @ H @ kernels[j] @ H) / (n - 1) ** 2
        for i in range(3)
        for j in range(i + 1, 3)
    )
    assert float(HSIC(width=0.7).value(Z)[0]) == pytest.approx(expected, rel=1e-12)


def test_dead_channels_do_not_break_decorrelation():
    z = Z.clone()
    z[:, 0] = 0
    assert Decorrelation().gradient(z).isfinite().all()
    assert torch.equal(Decorrelation().gradient(z)[:, 0], torch.zeros_like(z[:, 0]))


@pytest.mark.parametrize("name", REGULARIZERS)
def test_each_works_inside_a_map_and_as_a_loss(name):
    unit = Unit(Conv2d(3, 4, norm_bound=0.8), injection=Conv2d(2, 4, norm_bound=None), alpha=0.8)
    regularizer = REGULARIZERS[name]()
    form = "prox" if name == "absolute" else "gradient"
    chain = Chain([unit], regularizer=InsideMap(regularizer, weight=0.05, form=form))
    layer = opteq.Equilibrium(chain, solver=Anderson(tol=1e-10, max_steps=300)).double()
    g = torch.randn(5, 2, 4, 4, dtype=torch.float64)
    solution = layer.solve(g)
    assert bool(solution.converged.all())
    state = tensor(solution.state)
    (state.square().mean() + regularizer(state)).backward()
    assert all(known(p.grad).isfinite().all() for p in layer.parameters())


def test_sam_unrolled_trains():
    unit = Unit(Dense(6, 5, norm_bound=0.9), injection=Dense(3, 5, norm_bound=None), alpha=0.8)
    solver = SAM(regularizer=SquaredNorm(), on_failure="ignore")
    layer = opteq.Equilibrium(Chain([unit]), solver=solver, gradient=Unrolled(steps=20))
    g = torch.randn(4, 3)
    z = layer(g)
    bound = a(Chain, layer.map).bind(g)
    expected = bound.start()
    with torch.no_grad():
        for k in range(1, 21):
            beta = 0.5 / k**0.5
            expected = beta * (expected - 0.5 * expected) + (1 - beta) * bound(expected)
    torch.testing.assert_close(z, expected)
    z.sum().backward()
    assert all(known(p.grad).isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: InsideMap(Incay(), form="prox")(Z), OptionError, 'form="gradient"'),
        (
            lambda: InsideMap(Incay(), form="grad"),  # pyright: ignore[reportArgumentType]
            UnknownOptionError,
            "'gradient'",
        ),
        (lambda: InsideMap(Incay(), weight=0), OptionError, "above 0"),
        (
            lambda: Decorrelation("sample"),  # pyright: ignore[reportArgumentType]
            UnknownOptionError,
            "positions",
        ),
        (lambda: Decorrelation().value(torch.ones(2, 3)), ShapeError, 'over="batch"'),
        (
            lambda: SAM(regularizer="l2"),  # pyright: ignore[reportArgumentType]
            OptionError,
            "SquaredNorm()",
        ),
        (lambda: Unit(Dense(2, 2), alpha=0), OptionError, "(0, 1]"),
        (lambda: Chain([]), OptionError, "at least one Unit"),
    ],
)
def test_bad_options_are_refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_cosines_tend_to_the_gaussian_kernel_at_a_cost_linear_in_positions():
    torch.manual_seed(0)
    z = torch.randn(3, 4, 6, 5, dtype=torch.float64)
    exact = HSIC(width=0.7).value(z)
    errors = [
        float(((HSIC(width=0.7, frequencies=n).value(z) - exact).abs() / exact).max())
        for n in (2, 4, 8, 16, 32)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-9
    few = HSIC(width=0.7, frequencies=40)  # more features than positions: the other product
    torch.testing.assert_close(few.value(z[..., :2, :2]), HSIC(width=0.7).value(z[..., :2, :2]))
    with pytest.raises(OptionError, match="1 or more"):
        HSIC(frequencies=0)


@pytest.mark.parametrize("form", ["gradient", "prox"])
def test_a_weight_made_negative_by_hand_has_no_constant(form):
    inside = InsideMap(SquaredNorm(), form=form)
    assert inside.lipschitz() <= 1
    inside.weight = -3.0
    assert inside.lipschitz() == math.inf
