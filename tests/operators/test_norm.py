"""norm() is never below the true norm, and not far above it."""

import copy
import importlib.util
import math
from pathlib import Path

import pytest
import torch

from catalogue import OPERATORS
from narrow import known
from opteq.operators import Conv2d, Dense, ParallelBeam, dense_matrix, spectral
from opteq.operators.fourier import ConvolutionGeometry, symbol
from opteq.operators.spectral import convolution_norm
from opteq.problem import law_checks


@pytest.mark.parametrize("name", OPERATORS)
def test_norm_is_an_upper_bound(name):
    case = OPERATORS[name]
    for _ in range(3):
        operator = case.make().double()
        example = torch.zeros(1, *case.shape, dtype=torch.float64)
        law_checks.check_norm(operator, example, tightness=case.tightness)


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
    """Every draw at any size and at its known size."""
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
    operator.raw.data[2, 2] = 7  # the last entry alone
    assert operator.norm() == pytest.approx(7)


def test_norm_is_computed_once_while_weights_stay(monkeypatch):
    operator = Conv2d(2, 2)
    calls = []
    tight = operator.tight_norm
    monkeypatch.setattr(operator, "tight_norm", lambda weight: calls.append(1) or tight(weight))
    operator.norm()
    operator.norm()
    assert len(calls) == 1


def test_norm_of_broken_weights_is_not_a_number():
    for bad in (math.nan, math.inf, -math.inf):
        weight = torch.eye(3)
        weight[1, 2] = bad
        assert math.isnan(Dense.from_weight(weight).norm())
    # The sum of these is infinite, they are not.
    assert Dense.from_weight(torch.diag(torch.full((2,), 3e38))).norm() == pytest.approx(3e38)


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


@pytest.mark.parametrize(
    ("shape", "stride", "groups"),
    [
        ((40, 48, 3, 3), (1, 1), 1),
        ((48, 40, 3, 3), (1, 1), 1),
        ((6, 3, 3, 3), (1, 1), 2),
        ((8, 6, 3, 5), (2, 1), 1),
        ((40, 6, 3, 3), (2, 2), 1),
        ((12, 5, 1, 1), (1, 1), 3),
        ((7, 5, 4, 2), (2, 3), 1),
        ((9, 1, 5, 4), (1, 1), 1),
        ((1, 6, 3, 5), (1, 1), 1),
        ((8, 1, 3, 3), (1, 1), 4),
    ],
)
@pytest.mark.parametrize("kind", ["random", "peaked", "tiny", "huge", "flat"])
def test_the_largest_norm_over_angles_is_that_of_singular_values_at_each(
    shape, stride, groups, kind
):
    torch.manual_seed(0)
    kernel = torch.randn(shape, dtype=torch.float64)
    kernel *= {"tiny": 1e-25, "huge": 1e25}.get(kind, 1)
    if kind == "peaked":
        kernel[:, 0] += 3
    if kind == "flat":  # the same norm at every angle, so that no angle is ruled out
        kernel.zero_()[: min(shape[0] // groups, shape[1]), :, 0, 0].fill_diagonal_(1)
    geometry = ConvolutionGeometry(stride=stride, groups=groups)
    for grid in (
        spectral._any_size_grid(kernel, geometry, spectral._COARSE),
        spectral.AngleGrid(spectral._angles(9, 0.5, kernel), spectral._angles(8, 0.5, kernel), 1.0),
    ):
        blocks = symbol(kernel, grid.rows, grid.columns, geometry)
        norms = torch.linalg.svdvals(blocks)[..., 0]
        exact = float(norms.max()) * grid.factor
        for dtype, margin in ((torch.complex128, 2e-9), (torch.complex64, 2.1e-3)):
            bound, where = spectral._grid_maximum(kernel, geometry, grid, dtype)
            assert exact <= bound <= (1 + margin) * exact
            assert float(norms[where]) * grid.factor >= exact / (1 + margin)


@pytest.mark.parametrize("kind", ["random", "smooth", "derivative"])
@pytest.mark.parametrize("shape", [(12, 1, 13, 13), (1, 5, 7, 3), (6, 1, 3, 3)])
def test_filters_of_one_channel_have_their_norm_within_a_three_hundredth(shape, kind):
    """Beside 1,024 x 1,024 angles; also where training keeps to it."""
    torch.manual_seed(0)
    kernel = torch.randn(shape, dtype=torch.float64)
    if kind == "smooth":
        kernel = kernel.abs()
    if kind == "derivative":
        kernel = kernel - kernel.flip(3)
    spectra = torch.fft.fft2(kernel.flatten(0, 1), s=(1024, 1024)).abs().square().sum(0)
    true = float(spectra.max().sqrt())
    geometry = ConvolutionGeometry()
    assert true <= convolution_norm(kernel, geometry) <= 1.0003 * true
    trained = float(spectral.differentiable_convolution_norm(kernel, geometry))
    assert true <= trained <= 1.003 * true


def test_the_bound_has_the_gradient_of_the_norm():
    torch.manual_seed(0)
    kernel = torch.randn(40, 50, 3, 3, dtype=torch.float64)
    kernel[:, 0, 1, 1] += 10
    geometry = ConvolutionGeometry()
    leaf, other = (kernel.clone().requires_grad_() for _ in range(2))
    spectral.differentiable_convolution_norm(leaf, geometry).backward()
    grid = spectral._any_size_grid(kernel, geometry, spectral._COARSE)
    norms = torch.linalg.matrix_norm(symbol(other, grid.rows, grid.columns, geometry), 2)
    (norms.max() * grid.factor).backward()
    torch.testing.assert_close(leaf.grad, other.grad, rtol=2e-3, atol=1e-6)


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reliability" / "norms.py"


def test_norms_of_structured_weights(capsys):
    """The short form of the script that attacks norms: dead filters and groups, derivatives, ..."""
    spec = known(importlib.util.spec_from_file_location("norms", SCRIPT))
    script = importlib.util.module_from_spec(spec)
    known(spec.loader).exec_module(script)
    assert script.main(["--draws", "300"]) == 0
    assert "300 draws, 1,260 comparisons, 0 failures" in capsys.readouterr().out


@pytest.mark.parametrize("bound", [None, 0.9])
def test_the_last_group_alone_is_seen(bound):
    """The search may begin among dead groups: the proof does not depend on it."""
    operator = Conv2d(16, 16, groups=8, norm_bound=bound).double()
    operator.raw.data.zero_()[-1] = 3
    true = float(torch.linalg.matrix_norm(dense_matrix(operator, (16, 6, 6)), ord=2))
    if bound is None:
        assert 30 < true <= operator.norm()
    else:
        assert true <= bound
        assert operator.norm() >= true


def test_a_kernel_that_vanishes_at_the_first_angles_has_its_norm():
    kernel = torch.zeros(2, 2, 3, 3, dtype=torch.float64)
    kernel[1, :, 0, 1], kernel[1, :, 2, 1] = 1, -1
    operator = Conv2d.from_weight(kernel)
    true = float(torch.linalg.matrix_norm(dense_matrix(operator, (2, 9, 9)), ord=2))
    assert 2.6 < true <= operator.norm()


def test_a_kernel_that_cancels_itself_on_a_small_torus_keeps_finite_weights():
    """-1 and 1 two places apart on a ring of two: the operator is 0, and so is no divisor."""
    operator = Conv2d(1, 1, (1, 3), padding_mode="circular", image_size=(2, 2)).double()
    operator.raw.data.copy_(torch.tensor([[[[-0.3, 0.0, 0.3]]]]))
    weight = operator.weight
    weight.sum().backward()
    assert weight.isfinite().all()
    assert known(operator.raw.grad).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_beams_rounded_to_half_precision_keep_their_bound(dtype):
    for side, angles in ((5, 7), (8, 12), (6, 3)):
        beam = ParallelBeam(side, torch.linspace(0, 170, angles)).to(dtype)
        matrix = dense_matrix(copy.deepcopy(beam).double(), (1, side, side))
        assert beam.norm() >= float(torch.linalg.matrix_norm(matrix, 2))
