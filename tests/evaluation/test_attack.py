"""Attacks: against another library's on a plain net, and sanity of what they find."""

import copy
from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import opteq
from narrow import a
from opteq.attacks import Attack, projected_gradient, rules_for, withstands
from opteq.context import use_gradient
from opteq.data import load_data
from opteq.data.dataset import MemoryImages
from opteq.errors import OptionError, UnknownOptionError
from opteq.evaluation.attack import (
    SIGNS,
    UNIFORM,
    WORST,
    autoattack_accuracy,
    under_attack,
)
from opteq.gradient import Implicit, Unrolled
from opteq.models.own import Wrapped
from opteq.solve import Picard


def trained(name, steps):
    torch.manual_seed(0)
    model = opteq.create_model(name)
    data = load_data("digits")
    train, test = a(MemoryImages, data.train), a(MemoryImages, data.test)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = train.subset(torch.randint(0, len(train), (64,), generator=generator))
        optimizer.zero_grad()
        cross_entropy(model(batch.images.float() / 255), batch.labels).backward()
        optimizer.step()
    return model.eval(), test.images.float() / 255, test.labels


@pytest.fixture(scope="module")
def resnet():
    return trained("resnet_digits", 100)


@pytest.fixture(scope="module")
def geq():
    return trained("geq_digits", 40)


def test_an_image_that_is_lost_on_the_way_is_lost(geq, monkeypatch):
    """Also if the attack ends where the class is right again."""
    model, x, _ = geq
    with torch.no_grad():
        logits = model(x[:3])
    labels = logits.argmax(1)

    def there_and_back(model, x, labels, attack, see):
        wrong = logits.clone()
        wrong[1, labels[1]] = -100.0
        see(wrong)
        see(logits)
        return x

    monkeypatch.setattr("opteq.attacks.withstand.projected_gradient", there_and_back)
    assert withstands(model, x[:3], labels, Attack(0.1)).tolist() == [True, False, True]


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.06), ("l2", 0.6)])
def test_accuracy_is_that_of_foolbox_on_a_resnet(resnet, norm, epsilon):
    foolbox = pytest.importorskip("foolbox")
    model, x, labels = resnet
    ours = Attack(epsilon, norm, steps=20, start="image")
    theirs = {"linf": foolbox.attacks.LinfPGD, "l2": foolbox.attacks.L2PGD}[norm]
    attack = theirs(abs_stepsize=ours.size, steps=20, random_start=False)
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    _, _, fooled = attack(wrapped, x, labels, epsilons=epsilon)
    expected = 1 - fooled.double().mean()
    moved = projected_gradient(model, x, labels, ours)
    with torch.no_grad():
        clean = (model(x).argmax(1) == labels).double().mean()
        found = (model(moved).argmax(1) == labels).double().mean()
    assert clean - expected > 0.2  # the attack is one
    assert abs(float(found - expected)) <= 0.01


def test_accuracy_falls_with_epsilon_and_noise_never_beats_the_attack(geq):
    model, x, labels = geq
    batches = list(zip(x[:30].split(15), labels[:30].split(15), strict=True))
    balls: dict[Literal["linf", "l2"], tuple[float, ...]]
    balls = {"linf": (0.01, 0.05, 0.2), "l2": (0.1, 0.5, 2.0)}
    for norm, sizes in balls.items():
        found = under_attack(model, batches, [Attack(e, norm, steps=4) for e in sizes])
        worst = [each.accuracy[WORST] for each in found]
        assert found[0].images == 30
        assert worst == sorted(worst, reverse=True)
        assert worst[-1] < 0.5 < found[0].clean
        for each in found:
            assert each.accuracy[WORST] <= min(each.accuracy[k] for k in ("implicit", "unrolled"))
            for noise in (UNIFORM, SIGNS):
                assert each.accuracy[WORST] <= each.accuracy[noise]


def test_images_of_another_model_fool_less_than_its_own(geq, resnet):
    model, x, labels = geq
    x, labels = x[:100], labels[:100]
    attack = Attack(0.1, steps=10)
    with torch.no_grad():
        carried = model(projected_gradient(resnet[0], x, labels, attack)).argmax(1) == labels
        own = model(projected_gradient(model, x, labels, attack)).argmax(1) == labels
    assert own.float().mean() < carried.float().mean()


def test_implicit_and_unrolled_slopes_agree_when_both_are_exact(geq):
    model, x, labels = geq
    slopes = []
    for rule in (Implicit(), Unrolled(steps=40)):
        image = x[:8].clone().requires_grad_()
        with use_gradient(model, rule):
            (slope,) = torch.autograd.grad(cross_entropy(model(image), labels[:8]), image)
        slopes.append(slope.flatten())
    assert float(torch.cosine_similarity(*slopes, dim=0)) > 0.999
    own = {type(layer.gradient) for layer in model.modules() if hasattr(layer, "gradient")}
    assert Unrolled not in own


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_noise_fills_its_ball(norm):
    torch.manual_seed(0)
    x = torch.zeros(4000, 1, 2, 2)
    attack = Attack(0.3, norm)
    noise = attack.noise(x).flatten(1)
    size = noise.abs().amax(1) if norm == "linf" else noise.norm(dim=1)
    assert float(size.max()) <= 0.3 + 1e-6
    # Uniform in four dimensions: half of the points lie within 2^(-1/4) of the radius.
    share = float((size <= 0.3 * 0.5**0.25).float().mean())
    assert share == pytest.approx(0.5, abs=0.04)


def test_autoattack_is_at_least_as_strong():
    pytest.importorskip("pyautoattack")
    layers = nn.Linear(16, 12, bias=False), nn.ReLU(), nn.Linear(12, 5, bias=False)
    model = Wrapped(nn.Sequential(nn.Flatten(), *layers))
    model.eval()
    x = torch.rand(12, 1, 4, 4)
    labels = model(x).argmax(1)
    (ours,) = under_attack(model, [(x, labels)], [Attack(0.3, steps=10)])
    found = autoattack_accuracy(model, x, labels, 0.3, version="rand")
    assert found <= ours.accuracy["gradient"]
    assert found < ours.clean


def test_what_cannot_be_attacked_is_refused(geq):
    model, x, labels = geq
    with pytest.raises(OptionError, match="epsilon"):
        Attack(0.0)
    with pytest.raises(UnknownOptionError, match="norm"):
        Attack(0.1, "l1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="classifiers"):
        projected_gradient(model, x, labels[:, None, None], Attack(0.1))
    with pytest.raises(OptionError, match="training mode"):
        under_attack(opteq.create_model("geq_digits"), [(x, labels)])


def test_a_model_is_judged_by_its_own_forward_pass(geq):
    """Two models with the same weights, one applied once and one solved, that say different things:
    an attack too small to move either must leave the accuracy of each as it is."""
    solved, x, _ = geq
    once = copy.deepcopy(solved)
    for layer in once.modules():
        if isinstance(layer, opteq.Equilibrium):
            layer.gradient = Unrolled(steps=1)
            layer.solver = Picard(on_failure="ignore")
    with torch.no_grad():
        mine, other = once(x).argmax(1), solved(x).argmax(1)
    chosen = (mine != other).nonzero()[:, 0]
    assert len(chosen) > 0
    for model, truth in ((once, mine), (solved, other)):
        for rule in rules_for(model).values():
            safe = withstands(model, x[chosen], truth[chosen], Attack(1e-7, steps=2), rule)
            assert safe.all()
