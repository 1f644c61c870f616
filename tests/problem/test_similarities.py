"""Similarities: values, gradients, Hessians, bounds, and the five-line one of a user."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import opteq
from catalogue import SIMILARITIES, ValueOnlyGaussian
from narrow import a, known, tensor
from opteq.errors import DeviceError, DtypeError, OptionError, ShapeError
from opteq.kernels import GammaRule, Gaussian, Linear, PatchGaussian, Polynomial, Sigmoid
from opteq.kernels.gaussian import GaussianKernel
from opteq.operators import Conv2d, Dense, PatchProjection
from opteq.penalties import NonNegative
from opteq.problem import Problem, Similarity, law_checks
from opteq.problem.algebra import Sum
from opteq.problem.curvature import GAUSSIAN_BACKWARD, largest
from opteq.problem.statistics import statistics_move
from opteq.solve import ForwardBackward


def draw(name, batch=3, scale=1.0):
    case = SIMILARITIES[name]
    similarity = case.make().double()
    u = scale * case.size * torch.randn(batch, *case.injection, dtype=torch.float64)
    return similarity, torch.randn_like(similarity.zeros(u)), u


@pytest.mark.parametrize("name", SIMILARITIES)
def test_gradient_and_hessian_are_those_of_the_value(name):
    law_checks.check_similarity(*draw(name))


def dense_hessians(similarity, z, u):
    rows = []
    for state, injection in zip(z, u, strict=True):

        def value(s, injection=injection):
            return similarity.value(s[None], injection[None]).sum()

        hessian = tensor(torch.autograd.functional.hessian(value, state))
        rows.append(hessian.reshape(state.numel(), -1))
    return torch.stack(rows)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_hessian_stays_within_its_bounds(name):
    """Eigenvalues of the dense Hessian, at random and at nearly critical points."""
    for scale in (0.3, 3.0):
        similarity, z, u = draw(name, batch=2, scale=scale)
        bound = similarity.bind(u)
        low, high = bound.curvature()
        overall = similarity.curvature()
        for size in (0.3, 3.0):
            eigenvalues = torch.linalg.eigvalsh(dense_hessians(similarity, size * z, u))
            for range_ in ((low, high), overall):
                ends = (torch.as_tensor(end, dtype=torch.float64) for end in range_)
                least, most = (end.expand(len(z)) for end in ends)
                assert (eigenvalues[:, 0] >= least - 1e-9).all()
                assert (eigenvalues[:, -1] <= most + 1e-9).all()


def test_gaussian_bounds_are_sharp():
    """At gamma r^2 = 3/2 the backward bound 2 exp(-3/2) is attained, at r = 0 the forward one."""
    similarity = Gaussian(Dense.from_weight(torch.eye(1, dtype=torch.float64)), gamma=0.8)
    u = torch.tensor([[0.0], [math.sqrt(1.5 / 0.8)]], dtype=torch.float64)
    product = similarity.bind(u).hessian(torch.zeros_like(u))
    curvature = product(torch.ones_like(u))[:, 0]
    torch.testing.assert_close(
        curvature, torch.tensor([-1.0, GAUSSIAN_BACKWARD], dtype=torch.float64)
    )


def test_values_are_those_of_the_papers_table():
    W = torch.randn(3, 4, dtype=torch.float64)
    z, x = torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    op, inner, smooth = Dense.from_weight(W), (x * z).sum(1), (z @ W.T).square().sum(1) / 2
    torch.testing.assert_close(Linear(op).value(z, x), inner + smooth)
    torch.testing.assert_close(Sigmoid(op).value(z, x), torch.tanh(inner) + smooth)
    cubic = Polynomial(op, degree=3, offset=0, average=False)
    torch.testing.assert_close(cubic.value(z, x), inner**3 + smooth)
    averaged = Polynomial(op, degree=2, offset=1)
    torch.testing.assert_close(
        averaged.gradient(z, x), 2 * (inner[:, None] / 4 + 1) * x + z @ W.T @ W
    )
    u = torch.randn(2, 3, dtype=torch.float64)
    r = u - z @ W.T
    gate = torch.exp(-0.7 * r.square().sum(1))
    torch.testing.assert_close(Gaussian(op, gamma=0.7).value(z, u), gate / 1.4)
    torch.testing.assert_close(Gaussian(op, gamma=0.7).gradient(z, u), gate[:, None] * (r @ W))
    torch.testing.assert_close(Gaussian(op, gamma=0.7).gates(z, u), gate)


def test_patch_gaussian_equals_a_loop_over_patches():
    """Equation 16 of the paper, patch by patch with explicit slices."""
    W = Conv2d(3, 4).double()
    H = torch.randn(2 * 2 * 2, 5, dtype=torch.float64) / 3
    similarity = PatchGaussian(W, PatchProjection.from_weight(H, patch=2), gamma=0.6)
    z, u = (
        torch.randn(2, 3, 4, 6, dtype=torch.float64),
        torch.randn(2, 4, 4, 6, dtype=torch.float64),
    )
    r = u - W(z)
    value = torch.zeros(2, dtype=torch.float64)
    gates = torch.zeros(2, 2, 2, 3, dtype=torch.float64)
    for group in range(2):
        for row in range(2):
            for column in range(3):
                cut = r[:, 2 * group : 2 * group + 2, 2 * row : 2 * row + 2]
                patch = cut[..., 2 * column : 2 * column + 2].reshape(2, -1)
                gate = torch.exp(-0.6 * (patch @ H).square().sum(1))
                gates[:, group, row, column] = gate
                value += gate / 1.2
    torch.testing.assert_close(similarity.value(z, u), value)
    torch.testing.assert_close(similarity.gates(z, u), gates)


def test_gates_lie_between_zero_and_one():
    for name in ("gaussian", "gaussian conv", "patches"):
        similarity, z, u = draw(name)
        gates = a(GaussianKernel, similarity).gates(z, u)
        assert ((gates > 0) & (gates <= 1)).all()
        assert len(gates) == len(u)


def test_value_only_similarity_is_the_built_in_one():
    W = Dense(8, 6, norm_bound=0.9).double()
    z, u = torch.randn(4, 8, dtype=torch.float64), torch.randn(4, 6, dtype=torch.float64)
    own, built_in = ValueOnlyGaussian(W, 0.3), Gaussian(W, gamma=0.3)
    torch.testing.assert_close(own.value(z, u), built_in.value(z, u), rtol=0, atol=1e-14)
    torch.testing.assert_close(own.gradient(z, u), built_in.gradient(z, u), rtol=0, atol=1e-14)
    assert own.zeros(u).shape == (4, 8)


def test_sums_and_multiples():
    one, z, u = draw("gaussian")
    two = draw("value only")[0]
    combined = 2 * one + two * 0.5 + one
    torch.testing.assert_close(
        combined.value(z, u), 3 * one.value(z, u) + 0.5 * two.value(z, u), rtol=1e-12, atol=0
    )
    assert len(a(Sum, combined).terms) == 3
    minus = (-1 * one).curvature()
    assert (minus.low, minus.high) == (-one.curvature().high, -one.curvature().low)


def test_curvature_sharpened_by_the_injection():
    similarity, _, u = draw("polynomial")
    assert largest(similarity.curvature().high) == math.inf
    assert largest(similarity.bind(u).curvature().high) < math.inf
    assert largest(draw("cubic")[0].bind(u).curvature().high) == math.inf


def test_learned_gamma_stays_positive():
    similarity = Gaussian(Dense(2, 2), gamma=0.5, learn_gamma=True)
    assert a(Tensor, similarity.gamma).item() == pytest.approx(0.5)
    with torch.no_grad():
        similarity.log_gamma.sub_(30)
    assert a(Tensor, similarity.gamma).item() > 0


def test_gamma_keeps_double_precision():
    similarity = Gaussian(Dense(2, 2), gamma=0.3).float().double()
    assert float(similarity.gamma) == 0.3


@pytest.mark.parametrize("gamma", [0, -1.0, float("nan"), float("inf"), "0.5", None, True])
def test_gamma_out_of_range_is_refused(gamma):
    with pytest.raises(OptionError, match="above 0"):
        Gaussian(Dense(2, 2), gamma=gamma)


def test_gamma_as_raw_parameter_is_refused():
    with pytest.raises(OptionError, match="learn_gamma"):
        Gaussian(Dense(2, 2), gamma=torch.nn.Parameter(torch.tensor(0.5)))


@pytest.mark.parametrize(
    ("similarity", "u", "error", "words"),
    [
        (Gaussian(Dense(4, 3)), torch.ones(2, 4), ShapeError, "shape of Wz"),
        (Linear(Dense(4, 3)), torch.ones(2, 3), ShapeError, "shape of z"),
        (PatchGaussian(Conv2d(2, 8)), torch.ones(1, 8, 3, 4), ShapeError, "split and patch"),
        (Gaussian(Dense(4, 3)), torch.ones(3), ShapeError, "batch first"),
        (Gaussian(Dense(4, 3)), torch.ones(2, 3, dtype=torch.float64), DtypeError, "float64"),
        (Gaussian(Dense(4, 3)), torch.ones(2, 3, dtype=torch.long), DtypeError, "floating-point"),
        (Gaussian(Dense(4, 3)), [[1.0, 2.0, 3.0]], DtypeError, "floating-point"),
        (
            Gaussian(Dense(4, 3)) + Gaussian(Dense(5, 3)),
            torch.ones(2, 3),
            ShapeError,
            "different shapes",
        ),
    ],
)
def test_injections_that_do_not_fit_are_refused(similarity, u, error, words):
    with pytest.raises(error, match=words):
        similarity.bind(u).zeros()


def test_wrong_device_is_refused():
    with pytest.raises(DeviceError, match="Move one"):
        Gaussian(Dense(4, 3)).bind(torch.ones(2, 3, device="meta"))


def test_value_of_the_wrong_shape_is_refused():
    class Wrong(Similarity):
        def value(self, z, u):
            return (z * u).sum()

    with pytest.raises(ShapeError, match="one number per sample"):
        Wrong().gradient(torch.ones(2, 3), torch.ones(2, 3))


def test_missing_value_is_named():
    class Empty(Similarity):
        pass

    with pytest.raises(NotImplementedError, match="Empty must define value"):
        Empty().gradient(torch.ones(2, 3), torch.ones(2, 3))


def test_multiple_by_something_else_is_refused():
    with pytest.raises(OptionError, match="number"):
        _ = Linear(Dense(2, 2)) * "2"  # pyright: ignore[reportOperatorIssue]


@pytest.mark.parametrize(
    "value",
    [
        lambda z, u: (z.detach() * u).sum(1),
        lambda z, u: torch.from_numpy((z.detach() * u).sum(1).numpy()),
        lambda z, u: z.argmax(1).to(u),
    ],
)
def test_value_without_a_gradient_is_refused(value):
    class Flat(Similarity):
        def value(self, z, u):
            return value(z, u)

    problem = Problem(penalty=NonNegative(), similarity=Flat())
    for call in (
        lambda: problem.map(torch.ones(2, 3), torch.ones(2, 3)),
        lambda: opteq.Equilibrium(problem)(torch.ones(2, 3)),
        lambda: opteq.Equilibrium(problem)(torch.ones(2, 3), torch.ones(2, 3)),
    ):
        with pytest.raises(OptionError, match="differentiated"):
            call()


class Distances(Similarity):
    """-|u - Az|^2 / 2 with a plain tensor A: nothing tells that states have the width of A."""

    A: Tensor

    def __init__(self, A: Tensor) -> None:
        super().__init__()
        self.register_buffer("A", A)

    def value(self, z, u):
        return -(u - z @ self.A.T).square().sum(1) / 2


class Shaped(Distances):
    def zeros(self, u):
        return u.new_zeros(len(u), self.A.shape[1])


def test_states_of_another_shape_than_u_need_no_guess_where_they_are_given():
    torch.manual_seed(0)
    A = 0.3 * torch.randn(3, 5, dtype=torch.float64)
    u, z = torch.randn(4, 3, dtype=torch.float64), torch.zeros(4, 5, dtype=torch.float64)
    for similarity in (Distances(A), Distances(A) * 1.0, Distances(A) + Distances(A) * 0.5):
        problem = Problem(penalty=NonNegative(), similarity=similarity).double()
        assert problem.map(z, u).shape == (4, 5)
        assert problem.objective(z, u).shape == (4,)
        layer = opteq.Equilibrium(problem, solver=ForwardBackward(step=0.5, tol=1e-10))
        found = layer.solve(u, z0=z)
        assert bool(found.converged.all())
        assert float(problem.stationarity(tensor(found.state), u).max()) < 1e-8
        with pytest.raises(ShapeError, match=r"def zeros\(self, u\)"):
            layer(u)
        with pytest.raises(ShapeError, match="samples"):
            layer(u, z0=z[:2])
    shaped = opteq.Equilibrium(
        Problem(penalty=NonNegative(), similarity=Shaped(A)),
        solver=ForwardBackward(step=0.5, tol=1e-10),
    )
    single = opteq.Equilibrium(Problem(penalty=NonNegative(), similarity=Distances(A)))
    torch.testing.assert_close(shaped(u), single(u, z0=z), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Gaussian(torch.ones(3)), OptionError, "a tensor for fixed weights"),
        (
            lambda: Linear(torch.nn.Linear(2, 2)),  # pyright: ignore[reportArgumentType]
            OptionError,
            "Dense(in, out)",
        ),
        (
            lambda: PatchGaussian(Conv2d(2, 8), 0.5),  # pyright: ignore[reportArgumentType]
            OptionError,
            "third argument",
        ),
        (lambda: Linear(Dense(2, 2)) * float("nan"), OptionError, "finite"),
        (
            lambda: Linear(Conv2d(2, 2, stride=2)).bind(torch.ones(1, 2, 7, 7)),
            ShapeError,
            "image_size",
        ),
    ],
)
def test_wrong_parts_are_refused_with_a_remedy(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_plain_tensors_are_fixed_weights():
    W, z, u = torch.randn(3, 4), torch.randn(2, 4), torch.randn(2, 3)
    assert torch.equal(Gaussian(W).value(z, u), Gaussian(Dense.from_weight(W)).value(z, u))
    kernel, image = torch.randn(3, 2, 3, 3), torch.randn(1, 2, 4, 4)
    expected = Linear(Conv2d.from_weight(kernel, padding=1)).value(image, image)
    assert torch.equal(Linear(kernel).value(image, image), expected)


def test_python_sums_and_signs():
    one, z, u = draw("gaussian")
    torch.testing.assert_close(a(Sum, sum([one, one])).value(z, u), 2 * one.value(z, u))
    torch.testing.assert_close((-one).value(z, u), -one.value(z, u))


def test_numpy_numbers_are_numbers():
    W = Dense(np.int64(2), np.int32(2))  # pyright: ignore[reportArgumentType]
    similarity = Gaussian(W, gamma=np.float32(0.5))  # pyright: ignore[reportArgumentType]
    assert float(similarity.gamma) == 0.5


def test_rule_for_gamma_follows_the_batch_in_training_only():
    rule = GammaRule(0.2)
    similarity = Gaussian(Dense(4, 3, norm_bound=0.9), rule)
    u = torch.randn(64, 3)
    similarity.train()
    with statistics_move():
        bound = similarity.bind(u)
    expected = 0.2 / u.square().sum(1).mean()
    torch.testing.assert_close(bound.gamma, expected)
    similarity.eval()
    torch.testing.assert_close(similarity.bind(10 * u[:2]).gamma, expected)
    smallest = Gaussian(Dense(4, 3), GammaRule(0.2, "minimum")).train().bind(u).gamma
    torch.testing.assert_close(smallest, 0.2 / u.square().sum(1).min())
    low = Gaussian(Dense(4, 3), GammaRule(0.2, "low")).train()
    torch.testing.assert_close(low.bind(u).gamma, 0.2 / u.square().sum(1).sort().values[3])
    many = torch.rand(200_000, 3)
    share = (low.bind(many).gates(torch.zeros(len(many), 4)) > math.exp(-0.2)).float().mean()
    assert float(share) == pytest.approx(0.05, abs=0.005)


def test_looking_at_a_problem_does_not_move_its_gamma():
    """Only the forward pass of a layer in training does."""
    torch.manual_seed(0)
    similarity = Gaussian(Dense(4, 3, norm_bound=0.9), GammaRule(0.2))
    problem = Problem(penalty=NonNegative(), similarity=similarity).train()
    layer = opteq.Equilibrium(problem).train()
    u, z = torch.randn(8, 3), torch.zeros(8, 4)
    layer(u)
    before = {k: v.clone() for k, v in problem.state_dict().items()}
    for look in (problem.map, problem.objective, problem.stationarity):
        look(z, 30 * u)
    similarity.gates(z, 30 * u)
    similarity.value(z, 30 * u)
    layer.map.bind(30 * u)
    assert all(torch.equal(v, before[k]) for k, v in problem.state_dict().items())
    # What is looked at in training is the problem that training solves.
    assert float(problem.stationarity(layer(u), u).detach().max()) < 1e-4
    assert int(known(similarity.gamma_rule).batches) == 2


def test_a_value_is_checked_once_for_each_shape_of_states():
    calls = []

    class Counted(Similarity):
        def value(self, z, u):
            calls.append(len(z))
            return (z * u).sum(1)

    layer = opteq.Equilibrium(Problem(penalty=NonNegative(), similarity=Counted()))
    u = torch.randn(4, 3)
    with torch.no_grad():
        layer(u)
        first = len(calls)
        layer(u)
    assert len(calls) - first < first
    assert calls.count(1) == 1
