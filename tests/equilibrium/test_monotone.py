"""Monotone models: the complementarity problem they solve, both splittings, their gradients."""

import itertools

import pytest
import torch

from narrow import a, known
from opteq import Equilibrium
from opteq.equilibrium import Monotone
from opteq.errors import IllPosedError, OptionError
from opteq.gradient import Implicit, Unrolled
from opteq.operators import Bidiagonal, Conv2d, Dense, dense_matrix, weight_norm
from opteq.penalties import LeakyReLU
from opteq.solve import Anderson, ForwardBackward, PeacemanRachford

SOLVERS = {
    "forward-backward": ForwardBackward(tol=1e-12, max_steps=1000),
    "plain": ForwardBackward(tol=1e-11, max_steps=5000, accelerate=False),
    "peaceman-rachford": PeacemanRachford(tol=1e-12, max_steps=1000),
    "peaceman-rachford long": PeacemanRachford(tol=1e-12, max_steps=1000, step=3.0),
}


def dense_map(n=6, modulus=1.0, scale=0.3, **options):
    A, B = (Dense.from_weight(scale * torch.randn(n, n, dtype=torch.float64)) for _ in range(2))
    return Monotone(A, B, modulus=modulus, **options)


def circular(channels=3):
    return Conv2d(channels, channels, padding_mode="circular").double()


def tiers():
    shapes = [(2, 8, 8), (3, 4, 4)]
    A = Bidiagonal(
        [circular(2), circular(3)],
        [Conv2d(2, 3, stride=2, padding_mode="circular")],
        shapes=shapes,
    )
    return Monotone(A.double(), Bidiagonal([circular(2), circular(3)], shapes=shapes))


MAPS = {
    "dense": (dense_map, (6,)),
    "leaky relu": (lambda: dense_map(penalty=LeakyReLU(0.2)), (6,)),
    "circular": (lambda: Monotone(circular(), circular(), modulus=1.5), (3, 6, 8)),
    "zero padding": (lambda: Monotone(Conv2d(3, 3).double(), Conv2d(3, 3).double()), (3, 5, 5)),
    "tiers": (tiers, (176,)),
}
INVERTIBLE = ("dense", "leaky relu", "circular")


def by_enumeration(W, u):
    """The z >= 0 with z - Wz - u >= 0 and z'(z - Wz - u) = 0, by trying every support."""
    n = len(u)
    M = torch.eye(n, dtype=W.dtype) - W
    found = []
    for bits in itertools.product([False, True], repeat=n):
        support = torch.tensor(bits)
        z = torch.zeros_like(u)
        if any(bits):
            z[support] = torch.linalg.solve(M[support][:, support], u[support])
        if bool((z >= -1e-12).all()) and bool((M @ z - u >= -1e-12).all()):
            found.append(z)
    return found


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_equilibrium_is_the_one_solution_of_the_complementarity_problem(solver):
    for _ in range(5):
        model = dense_map()
        u = torch.randn(4, 6, dtype=torch.float64)
        z = Equilibrium(model, solver=solver)(u)
        W = model.product(torch.eye(6, dtype=torch.float64)).T
        for sample, injection in zip(z, u, strict=True):
            found = by_enumeration(W, injection)
            assert len(found) == 1
            torch.testing.assert_close(sample, found[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", MAPS)
def test_solvers_agree(name):
    make, shape = MAPS[name]
    model = make()
    u = torch.randn(3, *shape, dtype=torch.float64)
    states = [
        Equilibrium(model, solver=solver).solve(u).state
        for key, solver in SOLVERS.items()
        if "rachford" not in key or name in INVERTIBLE
    ]
    for state in states[1:]:
        torch.testing.assert_close(state, states[0], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", MAPS)
def test_modulus_and_lipschitz_constant_hold(name):
    make, shape = MAPS[name]
    model = make()
    size = int(torch.tensor(shape).prod())
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    W = model.product(basis).reshape(size, size).T.detach()
    adjoint = model.adjoint_product(basis).reshape(size, size).T.detach()
    torch.testing.assert_close(adjoint, W.T)
    inner = torch.eye(size, dtype=torch.float64) - W
    least = torch.linalg.eigvalsh((inner + inner.T) / 2)[0]
    assert float(least) >= model.modulus - 1e-10
    assert float(torch.linalg.matrix_norm(inner, 2)) <= model.lipschitz() * (1 + 1e-10)


@pytest.mark.parametrize("name", INVERTIBLE)
def test_resolvent_inverts(name):
    make, shape = MAPS[name]
    bound = make().bind(torch.randn(2, *shape, dtype=torch.float64))
    v = torch.randn(2, *shape, dtype=torch.float64)
    x = bound.resolvent(v, 0.7)
    back = x + 0.7 * (x - bound.map.product(x) - bound.u)
    torch.testing.assert_close(back, v)


@pytest.mark.parametrize("name", MAPS)
def test_gradients_equal_unrolled(name):
    make, shape = MAPS[name]
    torch.manual_seed(0)
    model = make()
    weights = list(model.state_dict(keep_vars=True).values())
    u = torch.randn(3, *shape, dtype=torch.float64, requires_grad=True)
    for tensor in weights:
        tensor.requires_grad_()
    cotangent = torch.randn_like(u)
    grads = []
    for rule, solver in (
        (Implicit(tol=1e-12, max_steps=3000), SOLVERS["forward-backward"]),
        (Unrolled(steps=800), ForwardBackward(tol=1e-6, accelerate=False)),
    ):
        z = Equilibrium(model, solver=solver, gradient=rule, allow_uncertified=True)(u)
        grads.append(torch.autograd.grad((z * cotangent).sum(), [u, *weights]))
    for ours, unrolled in zip(*grads, strict=True):
        torch.testing.assert_close(ours, unrolled, rtol=1e-6, atol=1e-8)


def test_no_inverse_is_made_up():
    layer = Equilibrium(MAPS["zero padding"][0](), solver=PeacemanRachford())
    with pytest.raises(OptionError, match="circular"):
        layer(torch.randn(1, 3, 5, 5, dtype=torch.float64))


def test_contraction_is_asked_of_solvers_that_need_it():
    with pytest.raises(IllPosedError, match="Anderson"):
        Equilibrium(Monotone(Conv2d(3, 3), Conv2d(3, 3)), solver=Anderson())


def test_trained_without_bounds_it_stays_solvable():
    """Gains far above 1, where a contraction would have been lost long ago."""
    model = Monotone(*(weight_norm(circular(), per="tensor") for _ in range(2)))
    with torch.no_grad():
        for operator in (model.symmetric, model.skew):
            known(a(Conv2d, operator).gain).fill_(5.0)
    solution = Equilibrium(model, solver=PeacemanRachford(tol=1e-9, max_steps=1000)).solve(
        torch.randn(2, 3, 6, 6, dtype=torch.float64)
    )
    assert float(model.curvature().high) == float("inf")
    assert bool(solution.converged.all())
    dense = dense_matrix(model.symmetric, (3, 6, 6))
    assert float(torch.linalg.matrix_norm(dense, 2)) > 1
