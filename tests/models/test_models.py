"""Every laptop-sized model: equilibria, gradients, training, saving, independence of samples."""

import copy

import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from opteq.equilibrium.base import as_tuple
from opteq.errors import ShapeError
from opteq.gradient import Implicit, Unrolled
from opteq.models import create_model, entry, list_models
from opteq.problem import Decorrelation
from opteq.solve import Anderson

EXPLICIT = list_models("resnet*")
DIGITS = list_models("*_digits")
EQUILIBRIUM = [name for name in DIGITS if name not in EXPLICIT]
SMALL = EQUILIBRIUM + list_models("*_tiny")
VARIANTS = {
    "geq linear": ("geq_digits", {"kernel": "linear"}),
    "geq polynomial": ("geq_digits", {"kernel": "polynomial"}),
    "geq sigmoid": ("geq_digits", {"kernel": "sigmoid"}),
    "geq minimum": ("geq_digits", {"gamma": "minimum"}),
    "geq learned": ("geq_digits", {"gamma": "learned"}),
    "kerdeq": ("geq_digits", {"gamma": 0.5}),
    "popteq conv": ("mopteq_digits", {"coupling": "none", "fusion": "conv"}),
    "mopteq perturbed": ("mopteq_digits", {"perturbation": 0.1}),
    "mopteq without diversity": ("mopteq_digits", {"diversity": "none"}),
    "opteq learned alpha": ("opteq_digits", {"alpha": "learned"}),
    "opteq separable": ("opteq_digits", {"separable": True}),
    "opteq decorrelated": ("opteq_digits", {"regularizer": Decorrelation()}),
}


def images(name, batch=4, dtype=torch.float64):
    return torch.randn(batch, *entry(name).input_shape, dtype=dtype)


@pytest.mark.parametrize("name", SMALL)
def test_equilibria_are_reached_to_the_tolerance(name):
    solver = Anderson(tol=1e-9, max_steps=300)
    model = create_model(name, solver=solver, gradient=Implicit()).double().eval()
    with torch.no_grad():
        output = model.run(images(name))
    pixels = entry(name).input_shape[1:] if "segment" in name else ()
    classes = entry(name).options.get("classes", 10)
    assert output.logits.shape == (4, classes, *pixels)
    for solution in output.solutions:
        assert bool(solution.converged.all())
        assert float(solution.residual.max()) <= 1e-9


@pytest.mark.parametrize("name", EQUILIBRIUM)
def test_gradients_of_every_parameter_equal_unrolled(name):
    x = images(name)
    results = []
    for rule in (Implicit(), Unrolled(steps=150)):
        torch.manual_seed(0)
        model = create_model(name, solver=Anderson(tol=1e-12, max_steps=500), gradient=rule)
        model = model.double()
        functional.cross_entropy(model(x), torch.arange(4)).backward()
        results.append(dict(model.named_parameters()))
    for key, parameter in results[0].items():
        expected = results[1][key].grad
        error = (parameter.grad - expected).norm() / (expected.norm() + 1e-10)
        assert float(error) < 1e-5, key


def digits(count):
    data = load_digits()
    x = torch.from_numpy(data.images[:count, None] / 16).float()
    return x, torch.from_numpy(data.target[:count]).long()


def train(model, steps=20):
    x, labels = digits(64)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(x), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("case", [*DIGITS, *VARIANTS])
def test_loss_falls_on_real_digits(case):
    name, options = VARIANTS.get(case, (case, {}))
    losses = train(create_model(name, **options))
    assert all(loss == loss and loss < 100 for loss in losses)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("name", DIGITS)
def test_samples_are_independent_at_inference(name):
    """No gamma, norm or solver leaks from one sample of a batch to another."""
    model = create_model(name)
    train(model, steps=3)
    model.eval()
    x, _ = digits(12)
    with torch.no_grad():
        together = model(x)
        alone = torch.cat([model(x[i : i + 1]) for i in range(12)])
    torch.testing.assert_close(together, alone, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", SMALL)
def test_saving_and_loading_gives_the_same_model(name):
    model, other = create_model(name).eval(), create_model(name).eval()
    x = images(name, dtype=torch.float32)
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    with torch.no_grad():
        assert torch.equal(model(x), other(x))
        assert as_tuple(model.run(x).solutions[0].state)[0].shape[0] == 4


def test_images_of_the_wrong_size_are_refused():
    model = create_model("geq_digits").eval()
    with pytest.raises(ShapeError, match="other sides"):
        model(torch.randn(1, 1, 16, 16))
    with pytest.raises(ShapeError, match="batch axis"):
        model(torch.randn(1, 8, 8))


def test_segmentation_learns_the_bright_pixels():
    torch.manual_seed(0)
    model = create_model("opteq_segment_tiny", classes=2, gradient={"name": "implicit"})
    coarse = torch.rand(4, 1, 6, 8)
    x = functional.interpolate(coarse, size=(24, 32)).expand(-1, 3, -1, -1)
    labels = (x[:, 0] > 0.5).long()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimiser.zero_grad()
        functional.cross_entropy(model(x), labels).backward()
        optimiser.step()
    accuracy = (model.eval()(x).argmax(1) == labels).double().mean()
    assert float(accuracy) > 0.8
