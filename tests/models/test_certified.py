"""Models made to be certified: bounds that training cannot break, and attacks that respect them."""

import math

import pytest
import torch
from torch.nn import functional

import opteq
from narrow import a
from opteq.data import load_data
from opteq.data.dataset import MemoryImages
from opteq.errors import OptionError
from opteq.models.bounded import SortedPairs
from opteq.models.network import Output
from opteq.models.stems import BoundedStem
from opteq.theory import certificate
from opteq.theory.robustness import certified_radius, withstands_all
from opteq.training.objective import Objective
from opteq.training.recipe import LossSettings

MODELS = {
    "geq": ("geq_digits", {"middle": (16,), "sides": (8,), "channels": 16}),
    "geq, branches": ("geq_digits", {"channels": 16}),
    "geq, beyond contraction": (
        "geq_digits",
        {
            "middle": (16,),
            "sides": (8,),
            "norm_bound": 1.3,
            "solver": "forward_backward",
            "gradient": "implicit",
        },
    ),
    "opteq": ("opteq_single_digits", {"channels": 16, "widths": (16,), "gradient": "one_step"}),
    "mopteq": ("mopteq_digits", {"channels": 16, "middle": (8, 8, 16), "diversity_weight": 0.02}),
    "deep opteq": ("opteq_digits", {"norm_bound": 0.8, "gradient": "one_step"}),
}


def trained(name):
    torch.manual_seed(0)
    registered, options = MODELS[name]
    model = opteq.create_model(registered, certified=True, head_grid=4, head_norm=20.0, **options)
    model.image_shape = (1, 8, 8)
    train = a(MemoryImages, load_data("digits").train).subset(range(64))
    images, labels = train.images.float() / 255, train.labels
    objective = Objective(LossSettings(margin=2.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(15):
        optimizer.zero_grad()
        objective(model.run(images), labels)[1].backward()
        optimizer.step()
    return model.eval(), images, labels


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("name", MODELS)
def test_trained_models_learn_and_keep_their_bound(name):
    model, images, labels = trained(name)
    cert = certificate(model)
    assert cert.unique
    assert math.isfinite(cert.lipschitz)
    with torch.no_grad():
        logits = model(images)
    assert float((logits.argmax(1) == labels).float().mean()) > 0.4
    # Pairs of images, near and far: the logits never move further than the bound says.
    torch.manual_seed(1)
    for size in (1e-2, 1.0):
        moved = images + size * torch.randn_like(images)
        with torch.no_grad():
            change = (model(moved) - logits).norm(dim=1)
        assert float((change / (moved - images).flatten(1).norm(dim=1)).max()) <= cert.lipschitz
    radius = certified_radius(logits, labels, cert.lipschitz)[:16]
    assert float(radius.max()) > 0
    sure = radius > radius.max() / 4
    reach = float(radius[sure].min())
    assert withstands_all(model, images[:16][sure], labels[:16][sure], reach, steps=4).all()


def test_geq_moves_less_than_opteq_at_equal_norms():
    bounds = {}
    for name in ("geq", "opteq"):
        registered, options = MODELS[name]
        torch.manual_seed(0)
        model = opteq.create_model(registered, certified=True, head_grid=4, **options)
        model.image_shape = (1, 8, 8)
        bounds[name] = certificate(model).lipschitz
    assert bounds["opteq"] > 5 * bounds["geq"]


def test_sorting_pairs_keeps_lengths_and_shrinks_distances():
    torch.manual_seed(0)
    x, y = torch.randn(2, 50, 6, 4, 4, dtype=torch.float64)
    sort = SortedPairs()
    torch.testing.assert_close(sort(x).flatten(1).norm(dim=1), x.flatten(1).norm(dim=1))
    assert bool(
        ((sort(x) - sort(y)).flatten(1).norm(dim=1) <= (x - y).flatten(1).norm(dim=1) + 1e-12).all()
    )
    assert bool((sort(x)[:, :3] >= sort(x)[:, 3:]).all())


def test_margin_is_taken_from_the_true_logit():
    torch.manual_seed(0)
    logits, labels = torch.randn(7, 4), torch.randint(0, 4, (7,))
    output = opteq.models.network.Output(logits, [])
    lowered = logits.clone()
    lowered[torch.arange(7), labels] -= 1.5
    expected = torch.nn.functional.cross_entropy(lowered, labels)
    torch.testing.assert_close(Objective(LossSettings(margin=1.5))(output, labels)[0], expected)


def test_what_cannot_be_certified_is_refused():
    with pytest.raises(OptionError, match="even number"):
        BoundedStem(1, 7)
    with pytest.raises(OptionError, match="cannot be certified"):
        opteq.create_model("opteq_digits", certified=True, unit="separable")


def test_temperature_divides_the_logits_after_the_margin():
    logits, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
    settings = LossSettings(margin=0.7, temperature=0.25)
    moved = logits - 0.7 * functional.one_hot(labels, 4)
    expected = functional.cross_entropy(moved / 0.25, labels)
    fit, total = Objective(settings)(Output(logits, []), labels)
    torch.testing.assert_close(fit, expected)
    assert total is fit
