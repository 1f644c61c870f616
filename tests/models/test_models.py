"""Every registered model: equilibria, gradients, training, saving, independence of samples."""

import copy
from dataclasses import replace

import pytest
import torch
from reduced import CASES, EQUILIBRIUM, one_per_builder, reduced
from torch.nn import functional

from narrow import a, known
from opteq import Equilibrium
from opteq.equilibrium import Chain, Monotone, Proximal
from opteq.errors import NotConvergedWarning, ShapeError
from opteq.gradient import Implicit, Unrolled
from opteq.kernels import PatchGaussian
from opteq.models import create_model, list_models
from opteq.models.registry import is_own
from opteq.operators import WeightedOperator
from opteq.problem import Decorrelation
from opteq.solve import Anderson, ForwardBackward, Picard
from opteq.states import as_tuple, like

# MDEQ promises no equilibrium; test_mdeq.py has what can be said of it. Wires need marks, which
# digits do not have, and restorers are too stiff to be unrolled: test_wires.py, test_seeded.py,
# test_restorer.py.
CERTAIN = {
    key: case
    for key, case in EQUILIBRIUM.items()
    if "mdeq" not in key and "wires" not in key and case.task in ("classification", "segmentation")
}
VARIANTS = {
    "geq linear": ("geq_digits", {"kernel": "linear"}),
    "geq polynomial": ("geq_digits", {"kernel": "polynomial"}),
    "geq sigmoid": ("geq_digits", {"kernel": "sigmoid"}),
    "geq low": ("geq_digits", {"gamma": "low"}),
    "geq minimum": ("geq_digits", {"gamma": "minimum"}),
    "geq learned": ("geq_digits", {"gamma": "learned"}),
    "geq weight norm": ("geq_digits", {"normalization": "weight_norm"}),
    "mopteq weight norm": ("mopteq_digits", {"normalization": "weight_norm"}),
    "opteq weight norm": ("opteq_digits", {"normalization": "weight_norm"}),
    "mopteq linear heritage": ("mopteq_digits", {"diversity": "none"}),
    "mopteq perturbed": ("mopteq_digits", {"perturbation": 0.1}),
    "opteq learned alpha": ("opteq_digits", {"alpha": "learned"}),
    "opteq separable": ("opteq_digits", {"unit": "separable"}),
    "opteq decorrelated": ("opteq_digits", {"regularizer": Decorrelation()}),
    "monotone forward-backward": ("monotone_digits", {"solver": "forward_backward"}),
}


def layers(model):
    return [module for module in model.modules() if isinstance(module, Equilibrium)]


def exact(case, gradient, solver=None):
    """The model in float64, solved to 1e-11."""
    torch.manual_seed(0)
    model = case.build().double()
    for layer in layers(model):
        wanted = layer.solver if solver is None or not layer.solver.splits else solver
        if type(wanted) is Picard and not gradient.is_forward_pass:
            wanted = Anderson()  # of models that are unrolled by default
        layer.solver = gradient.solver_or(None, replace(wanted, tol=1e-11, max_steps=3000))
        layer.gradient = gradient
    return model


def test_all_names_are_in_the_matrix():
    covered = {name for key in CASES for name in key.split(", ")}
    assert covered == {name for name in list_models() if not is_own(name)}


@pytest.mark.parametrize("case", CERTAIN.values(), ids=CERTAIN)
def test_equilibria_are_stationary(case):
    """Reached to the tolerance, and where there is a hidden objective no feasible direction lowers
    it to first order, while from the start the map's own direction does."""
    model = exact(case, Implicit()).eval()
    x = case.digits(4)[0].double()
    seen = {}

    def keep(layer):
        def hook(u, *rest, **options):
            seen[layer] = u
            return solve(u, *rest, **options)

        solve, layer.solve = layer.solve, hook

    for layer in layers(model):
        keep(layer)
    with torch.no_grad():
        output = model.run(x)
        for layer, solution in zip(layers(model), output.solutions, strict=True):
            assert bool(solution.converged.all())
            assert float(solution.residual.max()) <= 1e-11
            bound, z = layer.map.bind(seen[layer]), solution.state
            image = as_tuple(bound(z))
            for part, moved in zip(as_tuple(z), image, strict=True):
                torch.testing.assert_close(part, moved, rtol=1e-9, atol=1e-9)
            best = bound.objective(z)
            if best is None:
                assert isinstance(layer.map, Monotone) or len(a(Chain, layer.map).units) > 2
                continue
            for _ in range(10):
                step = tuple(1e-5 * torch.randn_like(part) for part in as_tuple(z))
                moved = bound.project(add(z, step))
                change = known(bound.objective(moved)) - best
                assert bool((change >= -1e-8 * (1 + best.abs())).all())
            start = bound.start()
            step = tuple(
                0.01 * (a - b) for a, b in zip(as_tuple(bound(start)), as_tuple(start), strict=True)
            )
            lower, upper = (known(bound.objective(s)) for s in (add(start, step), start))
            assert bool((lower < upper).all())


def add(z, step):
    return like(z, tuple(a + b for a, b in zip(as_tuple(z), step, strict=True)))


# Those of monotone maps take a thousand unrolled steps: test_monotone.py has small ones.
UNROLLED = [key for key in one_per_builder(CERTAIN) if "monotone" not in key]


@pytest.mark.parametrize("key", UNROLLED)
def test_gradients_of_every_parameter_equal_unrolled(key):
    case = CERTAIN[key]
    x, labels = case.digits(3)
    results = []
    plain = ForwardBackward(accelerate=False)
    for rule, solver in (
        (Implicit(tol=1e-11, max_steps=2000), None),
        (Unrolled(steps=250), plain),
    ):
        model = exact(case, rule, solver)
        for layer in layers(model):
            if isinstance(rule, Unrolled):
                layer.solver = replace(layer.solver, tol=1e-6)
        functional.cross_entropy(model(x.double()), labels).backward()
        results.append(dict(model.named_parameters()))
    total = sum(float(p.grad.norm()) for p in results[1].values())
    for key, parameter in results[0].items():
        expected = results[1][key].grad
        # Parameters in front of a normalisation have gradients of rounding size: those count by
        # the size of the whole gradient.
        scale = max(float(expected.norm()), 1e-4 * total)
        assert float((parameter.grad - expected).norm()) / scale < 1e-5, key


def train(case, model, given, target, steps):
    # Scales and potentials of restorers are logarithms, and start far from where they belong.
    rate = 0.05 if case.task == "restoration" else 5e-3
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = case.loss(model(*given), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("key", [*one_per_builder(CASES), *VARIANTS])
def test_loss_falls_on_real_digits(key):
    torch.manual_seed(0)
    if key in VARIANTS:
        name, options = VARIANTS[key]
        case, model = reduced("geq_digits"), create_model(name, **options)
        given, target = replace(case, shape=(1, 8, 8)).batch(16)
    else:
        case = CASES[key]
        model = case.build()
        given, target = case.batch(8)
    losses = train(case, model, given, target, steps=12 if key in VARIANTS else 5)
    assert all(loss == loss and loss < 100 for loss in losses)
    # Of some models next to nothing is learned.
    enough = 0.995 if model.count_parameters() > 10 else 1.0
    assert min(losses[-3:]) < enough * losses[0]


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("key", one_per_builder(CASES))
def test_trained_models_are_loaded_as_they_were_and_treat_samples_alone(key):
    """No gamma, norm or solver leaks from one sample of a batch to another."""
    case = CASES[key]
    torch.manual_seed(0)
    model, other = case.build(), case.build().eval()
    given, target = case.batch(4)
    train(case, model, given, target, steps=1)
    model.eval()
    with torch.no_grad():
        assert not torch.equal(model(*given), other(*given))
        other.load_state_dict(copy.deepcopy(model.state_dict()))
        assert torch.equal(model(*given), other(*given))
    for layer in layers(model):
        layer.solver = replace(layer.solver, tol=1e-6, max_steps=60)
        if "mdeq" in case.name:
            # Where no equilibrium is reached, rounding grows from step to step: take a few.
            layer.solver = Picard(max_steps=3)
    with torch.no_grad():
        together = model(*given)
        alone = torch.cat([model(*(part[i : i + 1] for part in given)) for i in range(4)])
        turned = model(*(part.flip(0) for part in given)).flip(0)
    # torchdiffeq takes one step size for the whole batch, within its tolerance of 1e-3.
    tolerance = 0.05 if "ode" in case.name else 2e-3
    torch.testing.assert_close(together, alone, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(together, turned, rtol=tolerance, atol=tolerance)


def test_images_of_the_wrong_size_are_refused():
    model = create_model("geq_digits").eval()
    with pytest.raises(ShapeError, match="other sides"):
        model(torch.randn(1, 1, 16, 16))
    with pytest.raises(ShapeError, match="batch axis"):
        model(torch.randn(1, 8, 8))
    for name in ("monotone_digits", "monotone_tiers_digits", "neural_ode_digits"):
        with pytest.raises(ShapeError, match="another side"):
            create_model(name)(torch.randn(1, 1, 16, 16))


def test_segmentation_learns_the_bright_pixels():
    torch.manual_seed(0)
    model = create_model("opteq_segment_tiny", classes=2, gradient={"name": "implicit"})
    coarse = torch.rand(4, 1, 6, 8)
    x = functional.interpolate(coarse, size=(24, 32)).expand(-1, 3, -1, -1)
    labels = (x[:, 0] > 0.5).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    accuracy = (model.eval()(x).argmax(1) == labels).double().mean()
    assert float(accuracy) > 0.8


def test_a_trained_weight_norm_is_not_called_certain():
    model = create_model("geq_digits", normalization="weight_norm")
    for layer in layers(model):
        assert layer.map.curvature().contraction == float("inf")
        operator = a(PatchGaussian, a(Proximal, layer.map).problem.similarity).operator
        with torch.no_grad():
            known(a(WeightedOperator, operator).gain).mul_(40)
    with pytest.warns(NotConvergedWarning):
        model.eval()(torch.rand(8, 1, 8, 8))
