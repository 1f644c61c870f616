"""Restorers: gradients of every parameter, noise levels, and what is refused."""

import pytest
import torch

import opteq
from opteq.errors import OpteqError, OptionError, ShapeError
from opteq.models.restorer import NoiseScales, Restorer, first_guess, gaussian_blur, reflected
from opteq.operators import AveragePool, FourierSample, Mask


def restorer(**options) -> Restorer:
    torch.manual_seed(0)
    model = opteq.create_model("restorer", **{"filters": 8, "side": 5, **options})
    assert isinstance(model, Restorer)
    return model


EXACT = {
    "solver": {"name": "memory_gradient", "tol": 1e-12, "max_steps": 5000},
    "gradient": {"name": "implicit", "tol": 1e-12, "max_steps": 500},
}


@pytest.mark.parametrize(
    "options",
    [{"kind": kind} for kind in ("weakly_convex", "convex", "gaussians", "gaussian")]
    + [{"through": (2,)}],
)
def test_gradients_of_every_parameter_equal_finite_differences(options):
    model = restorer(mu=5.0, rho=0.9, **options, **EXACT).double().train()
    y = torch.rand(2, 1, 10, 12, dtype=torch.float64)
    noise = torch.tensor([0.05, 0.1], dtype=torch.float64)

    def loss():
        return (model(y, noise).square() * torch.arange(12)).sum()

    loss().backward()
    assert len(list(model.parameters())) == 3 + len(options.get("through", ()))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        grad = parameter.grad.flatten()
        index, size = int(grad.abs().argmax()), 1e-5
        with torch.no_grad():
            flat = parameter.view(-1)
            flat[index] += size
            above = loss()
            flat[index] -= 2 * size
            below = loss()
            flat[index] += size
        assert float((above - below) / (2 * size)) == pytest.approx(float(grad[index]), rel=1e-5), (
            name
        )


def test_scales_are_interpolated_between_noise_levels():
    scales = NoiseScales(3, (5.0, 15.0, 25.0))
    with torch.no_grad():
        scales.logs.copy_(torch.tensor([[0.0, 1.0, 3.0]] * 3))
    levels = torch.tensor([5.0, 10.0, 15.0, 20.0, 25.0, 60.0, 0.0]) / 255
    found = scales(levels)
    assert found.shape == (7, 3)
    clamped = levels.clamp(5 / 255, 25 / 255)
    expected = torch.tensor([0.0, 0.5, 1.0, 2.0, 3.0, 3.0, 0.0]).exp() / clamped
    torch.testing.assert_close(found[:, 0], expected)


def test_each_image_has_its_own_noise_level():
    model = restorer().eval()
    y = torch.rand(2, 1, 16, 18)
    together = model(y, torch.tensor([0.02, 0.1]))
    for i, noise in enumerate((0.02, 0.1)):
        torch.testing.assert_close(together[i : i + 1], model(y[i : i + 1], noise))


def test_what_makes_no_sense_is_refused():
    model = restorer().eval()
    y = torch.rand(3, 1, 16, 16)
    with pytest.raises(ShapeError, match="2 noise levels for 3"):
        model(y, torch.tensor([0.1, 0.1]))
    with pytest.raises(OptionError, match="negative"):
        model(y, -0.1)
    with pytest.raises(ShapeError, match="batch axis"):
        model(y[0])
    for bad in (
        {"levels": (5.0,)},
        {"levels": (5.0, 5.0)},
        {"in_channels": 3},
        {"kind": "cubic"},
        {"kind": "gaussians", "potentials": "own"},
    ):
        with pytest.raises(OpteqError):
            restorer(**bad)
    with pytest.raises(OptionError, match="Give side=13"):
        restorer(side=11, through=(2, 4))
    assert restorer(side=13, through=(2, 4)).layer is not None


@pytest.mark.parametrize(("border", "side"), [(0, 8), (2, 7), (2, 12), (5, 8)])
def test_the_certificate_counts_the_continuation_at_the_borders(border, side):
    """Against a dense Jacobian of the whole model, and of the continuation alone."""
    model = restorer(kind="convex", mu=5.0, border=border, filters=4, **EXACT).double().eval()
    model.image_shape = (1, side, side)
    around = torch.autograd.functional.jacobian(
        lambda y: reflected(y, border)[0], torch.rand(1, 1, side, side, dtype=torch.float64)
    )
    stretch = torch.linalg.matrix_norm(around.reshape(-1, side * side), 2)
    assert stretch <= model.border_stretch(model.image_shape) + 1e-9
    assert model.border_stretch(model.image_shape) <= 3
    certificate = opteq.certificate(model)
    assert certificate.lipschitz == model.border_stretch(model.image_shape)  # convex: 1 otherwise
    whole = torch.autograd.functional.jacobian(
        lambda y: model(y, 0.1), torch.rand(1, 1, side, side, dtype=torch.float64)
    )
    assert torch.linalg.matrix_norm(whole.reshape(side * side, -1), 2) <= certificate.lipschitz


def test_a_subclass_that_does_more_is_not_certified():
    class Brighter(Restorer):
        def run(self, x, noise=None):
            return super().run(10 * x, noise)

    model = restorer(kind="convex")
    model.__class__ = Brighter
    assert opteq.certificate(model).lipschitz == float("inf")


@pytest.mark.parametrize(
    "H",
    [
        Mask(torch.arange(400).view(20, 20) % 3 == 0),
        AveragePool(2),
        gaussian_blur(1.0),
        FourierSample((torch.arange(400).view(20, 20) % 4 == 0).float()),
    ],
)
def test_the_first_guess_is_as_bright_as_the_image_and_fits_what_was_measured(H):
    flat = torch.full((2, 1, 20, 20), 0.7)
    guess = first_guess(H, H(flat))
    torch.testing.assert_close(guess[..., 3:-3, 3:-3], flat[..., 3:-3, 3:-3], rtol=0, atol=0.02)
    torch.manual_seed(0)
    x = torch.rand(2, 1, 20, 20)
    fit, back = (H(first_guess(H, H(x))) - H(x)).norm(), (H(H.adjoint(H(x))) - H(x)).norm()
    assert fit <= back + 1e-6
    assert first_guess(H, H(x)[:0]).shape == (0, 1, 20, 20)
