"""Proximal layers: 1-Lipschitz for any weights, because they are solved."""

import pytest
import torch
from torch import nn

import opteq
from narrow import tensor
from opteq.errors import OptionError, ShapeError
from opteq.kernels import Measurement, Ridge
from opteq.operators import Conv2d, Dense
from opteq.penalties import Free
from opteq.potentials import Huber, Quadratic, Ramp, SoftRamp, Spline
from opteq.problem import Problem
from opteq.solve import Nesterov, Newton

POTENTIALS = {
    "ramp": Ramp,
    "soft ramp": lambda: SoftRamp(2.0, 0.3),
    "huber": lambda: Huber(3.0, 0.2),
    "spline": lambda: Spline(4.0),
}
WEIGHTS = {
    "usual": lambda: torch.randn(9, 6) / 3,
    "large": lambda: 30 * torch.randn(9, 6),
    "zero": lambda: torch.zeros(9, 6),
    "rank one": lambda: 10 * torch.randn(9, 1) @ torch.randn(1, 6),
}


def layer_of(psi, weight, bias, solver=None):
    prior = Ridge(Dense.from_weight(weight), psi, bias=bias)
    problem = Problem(penalty=Free(), similarity=Measurement() + prior).double()
    solver = Newton(tol=1e-10) if solver is None else solver
    return opteq.Equilibrium(problem, solver=solver)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", POTENTIALS)
def test_any_weights_give_a_layer_that_is_firmly_non_expansive(name, weights):
    """The certificate says 1, exactly; the Jacobian is symmetric with eigenvalues in [0, 1], so the
    reflection 2z - u is 1-Lipschitz too."""
    torch.manual_seed(0)
    bias = torch.randn(9, dtype=torch.float64)
    layer = layer_of(POTENTIALS[name](), WEIGHTS[weights]().double(), bias)
    found = opteq.certificate(layer)
    assert found.lipschitz == 1.0
    assert found.unique
    u = torch.randn(5, 6, dtype=torch.float64)
    assert bool(layer.solve(u).converged.all())
    for one in u:
        jacobian = torch.autograd.functional.jacobian(lambda x: tensor(layer(x[None]))[0], one)
        assert isinstance(jacobian, torch.Tensor)
        torch.testing.assert_close(jacobian, jacobian.T, rtol=0, atol=1e-4)
        values = torch.linalg.eigvalsh((jacobian + jacobian.T) / 2)
        assert float(values.min()) >= -1e-4
        assert float(values.max()) <= 1 + 1e-4


@pytest.mark.parametrize("weights", WEIGHTS)
def test_pairs_far_apart_do_not_stretch(weights):
    torch.manual_seed(1)
    layer = layer_of(Ramp(), WEIGHTS[weights]().double(), torch.randn(9, dtype=torch.float64))
    u = 3 * torch.randn(400, 6, dtype=torch.float64)
    z = tensor(layer(u))
    du, dz = u[::2] - u[1::2], z[::2] - z[1::2]
    reflected = 2 * dz - du
    slack = 1 + 1e-6
    assert bool((dz.square().sum(1) <= slack * (dz * du).sum(1) + 1e-9).all())
    assert bool((reflected.norm(dim=1) <= slack * du.norm(dim=1)).all())


@pytest.mark.parametrize("name", POTENTIALS)
def test_the_bias_is_learned_and_solvers_agree(name):
    torch.manual_seed(0)
    bias = nn.Parameter(torch.randn(9, dtype=torch.float64))
    weight = torch.randn(9, 6, dtype=torch.float64)
    layer = layer_of(POTENTIALS[name](), weight, bias)
    other = layer_of(POTENTIALS[name](), weight, bias, Nesterov(tol=1e-10, max_steps=20_000))
    u = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(u), other(u), rtol=0, atol=1e-7)
    (found,) = torch.autograd.grad(tensor(layer(u)).square().sum(), bias)
    step = torch.zeros_like(bias)
    expected = torch.zeros_like(bias)
    for i in range(len(bias)):
        step.zero_()[i] = 1e-4
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                moved = layer_of(POTENTIALS[name](), weight, bias + sign * step)
                ends.append(float(tensor(moved(u)).square().sum()))
        expected[i] = (ends[0] - ends[1]) / 2e-4
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_convolutions_have_a_bias_for_each_filter():
    torch.manual_seed(0)
    bias = torch.randn(8, dtype=torch.float64)
    W = Conv2d(1, 8, 5, norm_bound=None).double()
    prior = Ridge(W, Ramp(), bias=bias)
    z = torch.randn(2, 1, 6, 8, dtype=torch.float64)
    expected = -W.adjoint(torch.relu(W(z) + bias[:, None, None]))
    torch.testing.assert_close(prior.bind(z).gradient(z), expected)


def test_what_makes_no_sense_is_refused():
    W = Dense(6, 8)
    with pytest.raises(OptionError, match="no sign"):
        Ridge(W, Ramp(), group=2)
    with pytest.raises(OptionError, match="per channel"):
        Ridge(W, Quadratic(), bias=torch.zeros(2, 2))
    with pytest.raises(ShapeError, match="bias has 3 columns"):
        Ridge(W, Ramp(), bias=torch.zeros(3)).bind(torch.zeros(1, 6)).gradient(torch.zeros(1, 6))
