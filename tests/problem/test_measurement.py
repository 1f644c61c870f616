"""Images from measurements: optima against an independent solver, certificates against dense
Jacobians, operators that are not what they say."""

import cvxpy as cp
import numpy as np
import pytest
import torch

import opteq
from narrow import tensor
from opteq.errors import OptionError, ShapeError
from opteq.kernels import Linear, Measurement, Ridge
from opteq.operators import (
    AveragePool,
    Conv2d,
    Dense,
    FourierSample,
    Mask,
    Physics,
    dense_matrix,
)
from opteq.penalties import Box, LeakyReLU
from opteq.potentials import Huber, MinimaxConcave, Potential, Spline, Welsch
from opteq.potentials.potential import Bends
from opteq.problem import Problem
from opteq.solve import ForwardBackward, Nesterov

SIDE = 6
EDGES = torch.zeros(2, 1, 3, 3, dtype=torch.float64)
EDGES[:, 0, 1, 1] = -1
EDGES[0, 0, 1, 2] = EDGES[1, 0, 2, 1] = 1
BLUR = torch.tensor([[[[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]]]).double() / 16
SOLVERS = [Nesterov(tol=1e-10, max_steps=20000), ForwardBackward(tol=1e-10, max_steps=20000)]


def measured(name):
    pixels = torch.arange(SIDE * SIDE).view(SIDE, SIDE)
    return {
        "denoising": None,
        "inpainting": Mask(pixels % 3 != 0),
        "deblurring": Conv2d.from_weight(BLUR),
        "super-resolution": AveragePool(2),
        "frequencies": FourierSample((pixels % 2 == 0).double()),
    }[name]


def image(batch=1):
    torch.manual_seed(0)
    return torch.rand(batch, 1, SIDE, SIDE, dtype=torch.float64)


@pytest.mark.parametrize("solver", SOLVERS, ids=["nesterov", "forward-backward"])
@pytest.mark.parametrize(
    "name", ["denoising", "inpainting", "deblurring", "super-resolution", "frequencies"]
)
def test_restored_images_are_the_optimum_of_an_independent_solver(name, solver):
    """Huber-smoothed total variation with pixels in [0, 1], against clarabel."""
    H = measured(name)
    mu, width = 4.0, 0.05
    prior = Ridge(Conv2d.from_weight(EDGES), Huber(mu, width))
    data = Measurement(H) if H is not None else Measurement()
    problem = Problem(penalty=Box(0.0, 1.0), similarity=data + prior)
    x = image()
    y = (x if H is None else H(x)) + 0.1
    layer = opteq.Equilibrium(problem, solver=solver, allow_uncertified=True)
    found = tensor(layer.solve(y).state)
    # Without strong convexity the minimiser may not be unique; its value is.
    A = np.eye(SIDE**2) if H is None else dense_matrix(H.double(), (1, SIDE, SIDE)).numpy()
    D = dense_matrix(Conv2d.from_weight(EDGES), (1, SIDE, SIDE)).numpy()
    z = cp.Variable(SIDE**2)
    smooth = cp.sum(cp.huber(D @ z, width)) * mu / 2  # type: ignore[arg-type]
    miss = cp.sum_squares(A @ z - y.numpy().ravel()) / 2
    best = cp.Problem(cp.Minimize(miss + smooth), [z >= 0, z <= 1])
    best.solve(solver=cp.CLARABEL)
    value = float(problem.objective(found, y))
    assert value == pytest.approx(best.value, abs=1e-6)
    if name == "denoising":
        assert z.value is not None
        assert np.abs(z.value - found.numpy().ravel()).max() < 1e-5


def layer_of(potential, strength=1.0, group=1):
    torch.manual_seed(1)
    W = Conv2d(1, 4, norm_bound=1.0).double()
    prior = Ridge(W, potential.double(), strength=strength, group=group)
    problem = Problem(penalty=LeakyReLU(1.0), similarity=Measurement() + prior)
    return opteq.Equilibrium(problem, solver=Nesterov(tol=1e-11, max_steps=20000))


WEAKLY_CONVEX = {
    "minimax-concave": lambda: MinimaxConcave(6.0, 0.1, 0.8),
    "welsch": lambda: Welsch(2.0, 3.0),
    "widths": lambda: Welsch((2.0, 2.0), (1.0, 200.0)),
    "spline": lambda: Spline(8.0, 0.9, knots=5, extent=0.5),
    "huber": lambda: Huber(5.0, 0.1),
}


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("name", WEAKLY_CONVEX)
def test_stability_is_certified_and_holds_for_dense_jacobians(name, group):
    layer = layer_of(WEAKLY_CONVEX[name](), group=group)
    cert = opteq.certificate(layer)
    assert cert.unique
    rho = WEAKLY_CONVEX[name]().bends().rho
    assert cert.lipschitz == pytest.approx(1 / (1 - rho * layer_norm(layer) ** 2), rel=1e-9)
    worst = 0.0
    for size in (0.05, 0.5):
        y = size * image()
        jacobian = torch.autograd.functional.jacobian(lambda v: tensor(layer(v)), y)
        worst = max(worst, float(torch.linalg.matrix_norm(jacobian.view(SIDE**2, -1), 2)))
    assert worst <= cert.lipschitz * (1 + 1e-9)
    assert worst > 0.5


def layer_norm(layer):
    return next(m for m in layer.modules() if isinstance(m, Conv2d)).norm()


def test_gradients_reach_filters_and_potential():
    layer = layer_of(Spline(4.0, 0.5, extent=0.5))
    tensor(layer(image(2))).square().sum().backward()
    parameters = dict(layer.named_parameters())
    assert len(parameters) == 2
    for name, parameter in parameters.items():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


def test_too_steep_a_prior_is_not_certified():
    torch.manual_seed(0)
    prior = Ridge(Conv2d(1, 4, norm_bound=1.0), Welsch(3.0, 1.0))
    problem = Problem(penalty=Box(0.0, 1.0), similarity=Measurement() + prior)
    layer = opteq.Equilibrium(problem, solver=Nesterov(), allow_uncertified=True)
    assert not opteq.certificate(layer).unique
    assert opteq.certificate(layer).lipschitz == float("inf")


class Deceiver(Potential):
    """Says that it is convex, and is not."""

    def forward(self, t):
        return torch.cos(t) - 1

    def slope(self, t):
        return -torch.sin(t)

    def bend(self, t):
        return -torch.cos(t)

    def bends(self):
        return Bends(0.0, 1.0)


def test_a_potential_that_bends_more_than_it_says_has_no_certificate():
    cert = opteq.certificate(layer_of(Deceiver()))
    assert not cert.unique
    assert cert.lipschitz == float("inf")
    assert "Deceiver bends from -1" in str(cert)


class Wrong:
    def A(self, x):
        return x.roll(1, -1)

    def A_adjoint(self, y):
        return y.roll(1, -1)


class Large:
    def A(self, x):
        return 2 * x

    def A_adjoint(self, y):
        return 2 * y


def test_operators_that_are_not_what_they_say_are_refused():
    with pytest.raises(OptionError, match="not the adjoint"):
        Physics(Wrong(), (1, 4, 5))
    with pytest.raises(OptionError, match="too many"):
        Physics(Large(), (1, 100, 100))
    assert Physics(Large(), (1, 100, 100), norm=2.0).norm() == 2.0
    with pytest.raises(OptionError, match="not finite"):
        Mask(torch.tensor([[1.0, float("nan")]]))
    with pytest.raises(ShapeError, match="does not fit"):
        Mask(torch.ones(4, 4))(torch.ones(1, 1, 5, 5))
    with pytest.raises(ShapeError, match="groups of 3"):
        layer_of(Huber(), group=3).solve(image())


def test_bad_pixels_of_one_image_do_not_touch_another():
    layer = layer_of(Huber(4.0, 0.1))
    y = image(2)
    good = tensor(layer.solve(y).state)[1]
    y[0, 0, 2, 2] = float("nan")
    with pytest.warns(opteq.errors.NotConvergedWarning):
        solution = layer.solve(y)
    assert solution.converged.tolist() == [False, True]
    torch.testing.assert_close(tensor(solution.state)[1], good)


def test_nesterov_needs_the_root_of_the_steps_of_plain_descent():
    """A condition number of 801: plain steps need hundreds, with Anderson's memory fewer."""
    torch.manual_seed(0)
    W = Conv2d.from_weight(EDGES / 8**0.5)
    problem = Problem(
        penalty=Box(0.0, 1.0), similarity=Measurement() + Ridge(W, Huber(800.0, 1e-3))
    )
    y = torch.rand(1, 1, 32, 32, dtype=torch.float64)
    steps = {}
    for name, solver in (
        ("nesterov", Nesterov(tol=1e-3, max_steps=5000)),
        ("plain", ForwardBackward(tol=1e-3, max_steps=5000, accelerate=False)),
    ):
        solution = opteq.Equilibrium(problem, solver=solver).solve(y)
        assert bool(solution.converged.all())
        steps[name] = int(solution.steps.max())
    assert steps["nesterov"] < steps["plain"] / 3


@pytest.mark.parametrize("size", [(8, 8), (7, 7)])
@pytest.mark.parametrize(("filters", "side", "numbers"), [(8, 5, 32), (32, 3, 8), (8, 5, 7)])
def test_a_bias_for_another_number_of_filters_is_refused(size, filters, side, numbers):
    prior = Ridge(Conv2d(1, filters, side), Huber(), bias=torch.randn(numbers))
    z = torch.rand(1, 1, *size)
    with pytest.raises(ShapeError, match=f"bias has {numbers} columns"):
        (Measurement() + prior).gradient(z, z)
    own = Ridge(Conv2d(1, filters, side), Huber(), bias=torch.randn(filters))
    assert (Measurement() + own).gradient(z, z).shape == z.shape


def test_one_similarity_less_another():
    A, B = Linear(Dense(4, 4)), Linear(Dense(4, 4))
    z, u = torch.randn(2, 4), torch.randn(2, 4)
    torch.testing.assert_close((A - 0.5 * B).value(z, u), A.value(z, u) - 0.5 * B.value(z, u))
    with pytest.raises(TypeError):
        A - 1  # type: ignore[operator]
