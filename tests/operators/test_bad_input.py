"""Operators refuse what they cannot take, and say what they would."""

import pytest
import torch

from narrow import known
from opteq.errors import DtypeError, OptionError, ShapeError, UnknownOptionError
from opteq.operators import (
    AveragePool,
    Composition,
    Conv2d,
    Dense,
    PatchProjection,
    StackedConv2d,
    weight_norm,
)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Dense(4, 3)(torch.ones(2, 5)), ShapeError, "4 entries"),
        (lambda: Dense(4, 3).adjoint(torch.ones(2, 4)), ShapeError, "3 entries"),
        (lambda: Dense(0, 3), OptionError, "at least 1"),
        (lambda: Dense(4, 3, norm_bound=0), OptionError, "above 0"),
        (lambda: Dense(4, 3, norm_bound=float("nan")), OptionError, "norm_bound"),
        (lambda: Dense.from_weight(torch.ones(3)), ShapeError, "(out, in)"),
        (lambda: Dense.from_weight(torch.ones(3, 3).int()), DtypeError, "floating-point"),
        (lambda: Conv2d(3, 4)(torch.ones(2, 4, 8, 8)), ShapeError, "(3, height, width)"),
        (lambda: Conv2d(3, 4)(torch.ones(3, 8, 8)), ShapeError, "first axis is the batch"),
        (lambda: Conv2d(3, 4, 9, padding=0)(torch.ones(1, 3, 4, 4)), ShapeError, "smaller"),
        (lambda: Conv2d(3, 4, groups=2), OptionError, "common divisor"),
        (lambda: Conv2d(3, 4, stride=0), OptionError, "at least 1"),
        (
            lambda: Conv2d(3, 4, stride=(1, 2, 3)),  # pyright: ignore[reportArgumentType]
            OptionError,
            "pair",
        ),
        (
            lambda: Conv2d(3, 4, padding_mode="circluar"),  # pyright: ignore[reportArgumentType]
            UnknownOptionError,
            "'circular'",
        ),
        (lambda: Conv2d(3, 4, 4, padding_mode="circular"), OptionError, "odd kernel_size"),
        (
            lambda: Conv2d(3, 4, paddding=1),  # pyright: ignore[reportCallIssue]
            UnknownOptionError,
            "'padding'",
        ),
        (lambda: Conv2d(3, 4, image_size=8)(torch.ones(1, 3, 9, 9)), ShapeError, "(8, 8)"),
        (
            lambda: Conv2d(1, 1, stride=2, padding_mode="circular")(torch.ones(1, 1, 5, 5)),
            ShapeError,
            "multiples of the stride",
        ),
        (
            lambda: Conv2d(1, 1, stride=2, image_size=8).adjoint(torch.ones(1, 1, 5, 5)),
            ShapeError,
            "image_size",
        ),
        (lambda: Conv2d.from_weight(torch.ones(3, 3)), ShapeError, "4 axes"),
        (lambda: PatchProjection(split=3)(torch.ones(1, 4, 4, 4)), ShapeError, "do not split"),
        (lambda: PatchProjection().adjoint(torch.ones(1, 4, 4, 4)), ShapeError, "(groups, 64"),
        (lambda: PatchProjection.from_weight(torch.ones(6, 2), patch=2), ShapeError, "patch^2"),
        (lambda: AveragePool(2)(torch.ones(1, 1, 3, 4)), ShapeError, "divisible by 2"),
        (lambda: Composition(), OptionError, "at least one"),
    ],
)
def test_refused_with_a_remedy(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "make",
    [
        lambda: Conv2d(3, 4, 1, zero_sum=True),
        lambda: StackedConv2d((1, 2, 3), 1, zero_sum=True),
    ],
)
def test_kernels_of_one_number_cannot_sum_to_zero(make):
    with pytest.raises(OptionError, match="sums to 0 is 0"):
        make()


def test_a_filter_without_length_keeps_none():
    W = Dense(3, 3)
    with torch.no_grad():
        W.raw[1] = 0
    weight_norm(W)
    W.weight.square().sum().backward()
    assert bool((W.weight[1] == 0).all())
    assert all(bool(known(p.grad).isfinite().all()) for p in W.parameters())
