"""Near-isometric starts: the whole spectrum at the bound, the bound still kept."""

import pytest
import torch

from opteq.operators import Conv2d, Dense, DepthwiseSeparable, dense_matrix, start_orthogonal


@pytest.mark.parametrize(("inside", "outside"), [(6, 6), (4, 9), (9, 4)])
@pytest.mark.parametrize("bound", [0.5, 0.95, 3.0])
def test_without_noise_all_singular_values_are_equal_and_near_the_bound(inside, outside, bound):
    W = start_orthogonal(Conv2d(inside, outside, norm_bound=bound), noise=0.0)
    dense = dense_matrix(W, (inside, 5, 5)).detach().double()
    values = torch.linalg.svdvals(dense)[: 25 * min(inside, outside)]
    assert torch.allclose(values, values[0].expand_as(values), rtol=1e-4)
    assert 0.94 * bound < float(values[0]) <= bound  # the bound of the norm is not sharp here


def test_with_noise_the_bound_is_kept_and_most_of_the_spectrum_is_near_it():
    torch.manual_seed(0)
    near = start_orthogonal(Conv2d(16, 16, norm_bound=0.95))
    usual = Conv2d(16, 16, norm_bound=0.95)
    for W, least in ((near, 0.75), (usual, 0.0)):
        values = torch.linalg.svdvals(dense_matrix(W, (16, 6, 6)).detach().double())
        assert float(values[0]) <= 0.95 * (1 + 1e-6)
        assert float(values.median()) >= least
    assert float(values.median()) < 0.6  # of the usual start


def test_every_operator_inside_a_module_is_started():
    module = torch.nn.Sequential(Dense(5, 5, norm_bound=0.9), DepthwiseSeparable(4, 4))
    before = [p.clone() for p in module.parameters()]
    start_orthogonal(module)
    changed = [bool((a != b).any()) for a, b in zip(before, module.parameters(), strict=True)]
    assert all(changed)
