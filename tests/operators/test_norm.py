"""norm() is never below the true norm, and not far above it."""

import math

import pytest
import torch

from catalogue import OPERATORS
from opteq.operators import Conv2d, Dense, dense_matrix, spectral
from opteq.operators.spectral import ConvolutionGeometry, convolution_norm
from opteq.problem import laws


@pytest.mark.parametrize("name", OPERATORS)
def test_norm_is_an_upper_bound(name):
    case = OPERATORS[name]
    for _ in range(5):
        operator = case.make().double()
        example = torch.zeros(1, *case.shape, dtype=torch.float64)
        laws.check_norm(operator, example, tightness=case.tightness)


def _random_convolution(generator: torch.Generator) -> tuple[Conv2d, tuple[int, int, int]]:
    def pick(*options: int) -> int:
        return options[int(torch.randint(len(options), (), generator=generator))]

    out, inner, kernel, size = pick(1, 2, 3, 5), pick(1, 2, 4), pick(1, 2, 3, 5), pick(5, 6, 7)
    weight = torch.randn(out, inner, kernel, kernel, generator=generator, dtype=torch.float64)
    if pick(0, 1):  # all of one sign: the case in which boundary effects are largest
        weight = weight.abs()
    stride, padding = pick(1, 2), pick(0, kernel // 2)
    operator = Conv2d.from_weight(weight, stride=stride, padding=padding)
    return operator, (inner, size, size)


@pytest.mark.parametrize("part", range(4))
def test_no_violation_in_a_thousand_draws(part):
    """R5. Every draw at any size and at its known size."""
    generator = torch.Generator().manual_seed(part)
    for _ in range(250):
        operator, shape = _random_convolution(generator)
        true = float(torch.linalg.matrix_norm(dense_matrix(operator, shape), ord=2))
        sized = Conv2d.from_weight(
            operator.weight,
            stride=operator.geometry.stride,
            padding=operator.padding,
            image_size=shape[1:],
        )
        assert operator.norm() >= true
        assert true <= sized.norm() <= 1.05 * true


@pytest.mark.parametrize("size", [8, 12, 16])
@pytest.mark.parametrize("channels", [8, 20])
def test_torus_bound_is_within_five_percent_where_the_exact_norm_is_too_dear(size, channels):
    weight = torch.randn(channels, channels, 3, 3, dtype=torch.float64)
    bound = convolution_norm(weight, ConvolutionGeometry(image_size=(size, size)))
    operator = Conv2d.from_weight(weight)
    z = torch.randn(1, channels, size, size, dtype=torch.float64)
    for _ in range(200):  # power iteration: a lower bound of the true norm
        z = operator.adjoint(operator(z))
        z /= z.norm()
    lower = float(operator(z).norm())
    assert lower <= bound <= 1.05 * lower


def test_any_size_bound_holds_for_large_images_and_is_nearly_attained():
    weight = torch.randn(2, 2, 3, 3, dtype=torch.float64)
    bound = Conv2d.from_weight(weight).norm()
    # The largest symbol over a very fine grid of angles is the supremum over all sizes.
    angles = torch.fft.fft2(weight, s=(512, 512)).permute(2, 3, 0, 1)
    supremum = float(torch.linalg.matrix_norm(angles, ord=2).max())
    assert supremum <= bound <= 1.01 * supremum


def test_norm_follows_weights_however_they_are_changed():
    operator = Dense.from_weight(torch.eye(3))
    assert operator.norm() == pytest.approx(1)
    operator.raw.mul_(2)
    assert operator.norm() == pytest.approx(2)
    operator.raw.data.mul_(2)  # not seen by version counters
    assert operator.norm() == pytest.approx(4)
    operator.load_state_dict({"raw": 5 * torch.eye(3)})
    assert operator.norm() == pytest.approx(5)


def test_norm_is_computed_once_while_weights_stay(monkeypatch):
    operator = Conv2d(2, 2)
    calls = []
    tight = operator.tight_norm
    monkeypatch.setattr(operator, "tight_norm", lambda weight: calls.append(1) or tight(weight))
    operator.norm()
    operator.norm()
    assert len(calls) == 1


def test_norm_of_broken_weights_is_not_a_number():
    assert math.isnan(Dense.from_weight(torch.tensor([[math.nan]])).norm())


def test_any_size_bound_covers_peaks_between_the_angles_it_looks_at():
    """I + R e^(i angle), R a rotation by half the spacing of the grid: the largest symbol, 2, lies
    in the middle between two angles, and a wide image comes closer to it than the grid does."""
    half = math.pi / 32
    rotation = torch.tensor(
        [[math.cos(half), -math.sin(half)], [math.sin(half), math.cos(half)]], dtype=torch.float64
    )
    kernel = torch.stack((torch.eye(2, dtype=torch.float64), rotation), -1)[:, :, None]
    operator = Conv2d.from_weight(kernel, padding=0)
    true = float(torch.linalg.matrix_norm(dense_matrix(operator, (2, 1, 300)), ord=2))
    assert true > 2 * math.cos(math.pi / 64)  # what the angles of the grid alone would give
    assert true <= operator.norm() == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("shape", [(100, 120), (120, 100)])
def test_gram_iteration_bounds_wide_convolutions_from_above(shape):
    """Against singular values at every angle of the grid, in float64."""
    geometry = spectral.ConvolutionGeometry()
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        kernel = torch.randn(*shape, 3, 3, generator=generator)
        if seed == 2:
            kernel[:, 0] *= 30
        assert min(shape) >= spectral._GRAM_CHANNELS
        grid = spectral._any_size_grid(kernel, geometry, spectral._COARSE)
        exact = spectral._grid_maximum(kernel.double(), geometry, grid)[0]
        bound = float(spectral.differentiable_convolution_norm(kernel, geometry))
        assert exact <= bound <= 1.03 * exact


def test_gram_iteration_has_the_gradient_of_the_norm(monkeypatch):
    torch.manual_seed(0)
    kernel = torch.randn(100, 100, 3, 3)
    kernel[:, 0, 1, 1] += 30
    gradients = []
    for channels in (96, 10**6):
        monkeypatch.setattr(spectral, "_GRAM_CHANNELS", channels)
        leaf = kernel.clone().requires_grad_()
        spectral.differentiable_convolution_norm(leaf, spectral.ConvolutionGeometry()).backward()
        gradients.append(leaf.grad.flatten())
    cosine = torch.nn.functional.cosine_similarity(*gradients, dim=0)
    assert float(cosine) > 1 - 1e-6
