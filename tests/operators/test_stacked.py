"""Filters composed of small kernels: one convolution, its norm that of the whole."""

import pytest
import torch
from torch.nn import functional

from opteq.errors import OptionError
from opteq.operators import Conv2d, StackedConv2d, dense_matrix, freeze, start_orthogonal
from opteq.operators.folded import foldable

CHANNELS = (2, 3, 4, 5)


def small_kernels(stack):
    return [*stack.earlier, stack.raw]


def test_away_from_borders_it_is_one_kernel_after_the_other():
    torch.manual_seed(0)
    stack = StackedConv2d(CHANNELS, 3, norm_bound=None).double()
    z = torch.randn(2, 2, 15, 14, dtype=torch.float64)
    stepwise = z
    for kernel in small_kernels(stack):
        stepwise = functional.conv2d(stepwise, kernel)
    torch.testing.assert_close(stack(z)[..., 3:-3, 3:-3], stepwise)
    assert stack(z).shape == (2, 5, 15, 14)


def test_filters_of_zero_sum_do_not_see_brightness():
    stack = StackedConv2d((1, 4, 8, 60), 5, zero_sum=True).double()
    torch.testing.assert_close(stack.weight.sum((2, 3)), torch.zeros(60, 1, dtype=torch.float64))
    assert (stack.weight.abs().amax((2, 3)) > 1e-3).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bound_holds_after_wild_optimizer_steps(dtype):
    """Steps of each kernel alone too: a norm that was kept from before would show."""
    torch.manual_seed(0)
    stack = StackedConv2d(CHANNELS, 3, norm_bound=0.9).to(dtype)
    optimizer = torch.optim.SGD(stack.parameters(), lr=1.0)
    for step in range(60):
        moved = small_kernels(stack)[step % 3 :]
        optimizer.zero_grad()
        for kernel in moved[:1] if step % 2 else moved:
            kernel.grad = torch.randn_like(kernel) * 10 ** (step % 3 - 1)
        optimizer.step()
        with torch.no_grad():
            # On images hardly larger than the kernel the operator may be far below its bound.
            matrix = dense_matrix(stack, (2, 12, 12)).double()
            assert 0.7 < float(torch.linalg.matrix_norm(matrix, ord=2)) <= 0.9
            assert stack.norm() <= 0.9


def test_gradients_reach_every_kernel():
    torch.manual_seed(0)
    stack = StackedConv2d((1, 2, 2), 3, norm_bound=0.5, zero_sum=True).double()
    names = list(dict(stack.named_parameters()))
    z = torch.randn(1, 1, 5, 4, dtype=torch.float64)

    def apply(*tensors):
        return torch.func.functional_call(stack, dict(zip(names, tensors, strict=True)), z)

    # Well above the bound, where it has a derivative.
    inputs = tuple((2 * p.detach()).requires_grad_() for p in stack.parameters())
    assert torch.autograd.gradcheck(apply, inputs)


def test_a_solve_sees_one_convolution():
    """Which is folded, and computes norms of the same weights once."""
    stack = StackedConv2d((1, 4, 9), 3, norm_bound=1.0)
    twin = freeze(stack)
    assert type(twin) is Conv2d
    assert foldable(twin)
    assert twin.norm() == stack.norm()
    loss = twin(torch.randn(1, 1, 6, 6)).square().sum()
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in stack.parameters())


def test_an_orthogonal_start_is_one_of_the_whole():
    stack = start_orthogonal(StackedConv2d((2, 3, 4), 3, norm_bound=0.9), noise=0.0)
    values = torch.linalg.svdvals(dense_matrix(stack, (2, 6, 6)).detach().double())
    torch.testing.assert_close(values, values[0].expand_as(values), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("channels", "side", "message"),
    [((1, 8), 3, "Use Conv2d"), ((1, 2, 3), 4, "odd"), ((1, 0, 3), 3, "channels")],
)
def test_stacks_that_make_no_sense_are_refused(channels, side, message):
    with pytest.raises(OptionError, match=message):
        StackedConv2d(channels, side)
