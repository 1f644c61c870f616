"""Trained weights stay within their bound whatever the optimizer does."""

import math

import pytest
import torch

from catalogue import OPERATORS
from narrow import a, known
from opteq.operators import Conv2d, Dense, DepthwiseSeparable, PatchProjection, dense_matrix, freeze

BOUNDED = {
    "dense": (lambda dtype: Dense(9, 6, norm_bound=0.8).to(dtype), (9,), 0.8),
    "wide dense": (lambda dtype: Dense(5, 40, norm_bound=1.3).to(dtype), (5,), 1.3),
    "conv": (lambda dtype: Conv2d(3, 4, norm_bound=0.95).to(dtype), (3, 6, 6), 0.95),
    "conv sized": (
        lambda dtype: Conv2d(3, 4, norm_bound=0.95, image_size=6).to(dtype),
        (3, 6, 6),
        0.95,
    ),
    "conv circular": (
        lambda dtype: Conv2d(3, 4, padding_mode="circular", norm_bound=0.95).to(dtype),
        (3, 6, 6),
        0.95,
    ),
    "separable": (
        lambda dtype: DepthwiseSeparable(3, 4, norm_bound=0.95).to(dtype),
        (3, 6, 6),
        0.95,
    ),
    "patches": (
        lambda dtype: PatchProjection(patch=2, split=2, hidden=12).to(dtype),
        (4, 4, 4),
        1.0,
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", BOUNDED)
def test_bound_holds_after_wild_optimizer_steps(name, dtype):
    """14 cases x 80 steps."""
    make, shape, bound = BOUNDED[name]
    operator = make(dtype)
    optimizer = torch.optim.SGD(operator.parameters(), lr=1.0)
    for step in range(80):
        for parameter in operator.parameters():
            parameter.grad = torch.randn_like(parameter) * 10 ** (step % 5 - 2)
        optimizer.step()
        matrix = dense_matrix(operator, shape).double()
        assert float(torch.linalg.matrix_norm(matrix, ord=2)) <= bound


@pytest.mark.parametrize("name", BOUNDED)
def test_bound_survives_loading(name):
    make, shape, bound = BOUNDED[name]
    operator = make(torch.float64)
    state = {key: 100 * torch.randn_like(value) for key, value in operator.state_dict().items()}
    operator.load_state_dict(state)
    matrix = dense_matrix(operator, shape)
    assert float(torch.linalg.matrix_norm(matrix, ord=2)) <= bound


@pytest.mark.parametrize("name", BOUNDED)
def test_weights_within_the_bound_are_left_alone(name):
    make, *_ = BOUNDED[name]
    operator = make(torch.float64)
    with torch.no_grad():
        for parameter in operator.parameters():
            parameter.mul_(0.1)
    for module in operator.modules():
        if hasattr(module, "raw"):
            assert torch.equal(module.weight, module.raw)


@pytest.mark.parametrize("name", BOUNDED)
def test_gradient_flows_through_the_norm(name):
    """gradcheck of z -> W(raw) z in raw, with the bound active."""
    make, shape, _ = BOUNDED[name]
    operator = make(torch.float64)
    raws = {key: 3 * value.detach().requires_grad_() for key, value in operator.named_parameters()}
    z = torch.randn(2, *shape, dtype=torch.float64)

    def apply(*tensors):
        return torch.func.functional_call(operator, dict(zip(raws, tensors, strict=True)), z)

    inputs = tuple(value.detach().requires_grad_() for value in raws.values())
    assert torch.autograd.gradcheck(apply, inputs)


@pytest.mark.parametrize("name", OPERATORS)
def test_frozen_twin_is_the_same_operator(name):
    case = OPERATORS[name]
    operator = case.make().double()
    twin = freeze(operator)
    z = torch.randn(2, *case.shape, dtype=torch.float64)
    assert torch.equal(twin(z), operator(z))
    # The twin has the weights of now, and its limit may be theirs.
    true = float(torch.linalg.matrix_norm(dense_matrix(twin, case.shape).detach(), 2))
    assert true * (1 - 1e-9) <= twin.norm_limit() <= operator.norm_limit()


def test_frozen_twin_computes_the_weight_once_and_keeps_its_gradient():
    operator = Dense(4, 3)
    calls = []
    norm = operator.differentiable_norm
    operator.differentiable_norm = lambda weight: calls.append(1) or norm(weight)
    twin = a(Dense, freeze(torch.nn.ModuleList([operator]))[0])
    calls.clear()
    for _ in range(5):
        twin.adjoint(twin(torch.ones(1, 4))).sum().backward(retain_graph=True)
    assert not calls
    assert known(operator.raw.grad).abs().sum() > 0


def test_free_weights_promise_nothing():
    assert Dense(4, 3, norm_bound=None).norm_limit() == math.inf
    assert Dense.from_weight(2 * torch.eye(3)).norm_limit() == pytest.approx(2)


def test_a_frozen_operator_does_not_change_with_its_twin():
    """Norms are computed on a twin in double precision."""
    frozen = Conv2d(3, 4, norm_bound=0.9).frozen()
    before = frozen.raw.clone()
    twin = frozen.frozen().double()
    assert twin.raw.dtype == torch.float64
    assert frozen.raw.dtype == torch.float32
    assert torch.equal(frozen.raw, before)
