"""Grad-CAM against its formula, gates, and the share of a map on a mask."""

import subprocess
import sys

import pytest
import torch
from torch.nn import functional

import opteq
from narrow import a, classifier, known
from opteq.data import load_data
from opteq.data.dataset import MemoryImages
from opteq.errors import OptionError, UnknownOptionError
from opteq.evaluation.saliency import gate_map, grad_cam, gradient_map, share_inside
from opteq.models.resnet import ResNet
from opteq.solve import Anderson


@pytest.fixture(scope="module")
def digits():
    return a(MemoryImages, load_data("digits").test).images[:4].float() / 255


def by_hand(features, logits_of, target, size):
    """ReLU of the channels, each weighed by the mean slope of the logit in it, resized, over its
    maximum."""
    A = features.detach().requires_grad_()
    logits = logits_of(A)
    (slope,) = torch.autograd.grad(logits.gather(1, target[:, None]).sum(), A)
    cam = (slope.mean((2, 3), keepdim=True) * A).sum(1, keepdim=True).relu()
    cam = functional.interpolate(cam, size=size, mode="bilinear", align_corners=False)[:, 0]
    return (cam / cam.flatten(1).amax(1).clamp(min=1e-12).view(-1, 1, 1)).detach()


@pytest.mark.parametrize("name", ["geq_digits", "mopteq_digits", "opteq_digits"])
def test_grad_cam_of_the_state_is_the_formula(name, digits):
    torch.manual_seed(0)
    model = classifier(name).eval()
    with torch.no_grad():
        fused, _ = model.body(model.stem(digits))
        target = model(digits).argmax(1)
    expected = by_hand(fused, model.read_out, target, digits.shape[2:])
    torch.testing.assert_close(grad_cam(model, digits), expected, rtol=1e-3, atol=1e-4)


def test_grad_cam_of_a_resnet_is_the_formula(digits):
    torch.manual_seed(0)
    model = a(ResNet, opteq.create_model("resnet_digits")).eval()
    target = torch.tensor([3, 1, 4, 1])
    expected = by_hand(model.features(digits), model.head, target, digits.shape[2:])
    torch.testing.assert_close(grad_cam(model, digits, target), expected, rtol=1e-4, atol=1e-5)


def test_grad_cam_of_the_injection_passes_the_equilibrium(digits):
    torch.manual_seed(0)
    model = classifier(
        "geq_digits", solver=Anderson(tol=1e-6, max_steps=60), gradient=opteq.gradient.Implicit()
    ).eval()
    with torch.no_grad():
        features = model.stem(digits)
        target = model(digits).argmax(1)
    expected = by_hand(
        features, lambda A: model.read_out(model.body(A)[0]), target, digits.shape[2:]
    )
    found = grad_cam(model, digits, place="injection")
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_gradient_map_is_the_largest_slope_of_the_channels(digits):
    torch.manual_seed(0)
    model = opteq.create_model("resnet_digits").eval()
    x = digits.clone().requires_grad_()
    logits = model(x)
    (slope,) = torch.autograd.grad(logits.amax(1).sum(), x)
    expected = slope.abs().amax(1)
    expected = expected / expected.flatten(1).amax(1).view(-1, 1, 1)
    torch.testing.assert_close(gradient_map(model, digits), expected, rtol=1e-4, atol=1e-5)


def test_gates_lie_between_0_and_1_and_open_as_gamma_falls(digits):
    torch.manual_seed(0)
    gates = known(gate_map(opteq.create_model("geq_digits", gamma=0.5).eval(), digits))
    open_gates = gate_map(opteq.create_model("geq_digits", gamma=1e-9).eval(), digits)
    assert gates.shape == (4, 8, 8)
    assert 0 <= float(gates.min()) < float(gates.max()) <= 1
    torch.testing.assert_close(open_gates, torch.ones(4, 8, 8), rtol=0, atol=1e-4)
    assert gate_map(opteq.create_model("mopteq_digits").eval(), digits) is None


def test_share_inside_a_mask():
    masks = torch.zeros(1, 4, 4, dtype=torch.bool)
    masks[:, :2] = True
    assert float(share_inside(torch.ones(1, 4, 4), masks)) == pytest.approx(1.0)
    assert float(share_inside(masks.float(), masks)) == pytest.approx(2.0)
    assert float(share_inside((~masks).float(), masks)) == 0.0


def test_what_cannot_be_looked_into_is_told(digits):
    with pytest.raises(OptionError, match="no known layer"):
        grad_cam(opteq.create_model("neural_ode_digits").eval(), digits)
    with pytest.raises(UnknownOptionError, match="'state'"):
        grad_cam(
            opteq.create_model("geq_digits").eval(),
            digits,
            place="stat",  # pyright: ignore[reportArgumentType]
        )


def test_what_is_not_installed_is_told_in_a_line(digits, monkeypatch):
    monkeypatch.setitem(sys.modules, "captum", None)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(OptionError, match=r"Grad-CAM needs captum.*opteq\[saliency\]"):
        grad_cam(opteq.create_model("geq_digits").eval(), digits)


def test_layers_import_nothing_that_they_do_not_need():
    code = (
        "import sys, torch, opteq\n"
        "from opteq.operators import Dense\nfrom opteq.kernels import Linear\n"
        "from opteq.penalties import NonNegative\n"
        "problem = opteq.Problem(penalty=NonNegative(), similarity=Linear(Dense(4, 4)))\n"
        "opteq.Equilibrium(problem)(torch.rand(2, 4))\n"
        "print([name for name in sys.modules if name in "
        "('kornia', 'captum', 'matplotlib', 'lightning_fabric', 'typer', 'PIL')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
