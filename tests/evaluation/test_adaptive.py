"""Predictions that stop when the class is certain."""

from dataclasses import replace

import pytest
import torch

from narrow import a, classifier, known, tensor
from opteq.equilibrium.proximal import Proximal
from opteq.errors import OptionError
from opteq.evaluation.adaptive import Evidence, _Leads, calibrate, predict_adaptively
from opteq.kernels import Gaussian, Linear, PatchGaussian
from opteq.models.heads import PooledHead
from opteq.operators import Dense, WeightedOperator
from opteq.penalties import NonNegative
from opteq.problem import Problem
from opteq.problem.curvature import largest
from opteq.solve import Anderson, solve


def model_and_images(**options):
    torch.manual_seed(0)
    model = classifier("geq_digits", **options)
    images = torch.rand(64, 1, 8, 8)
    for _ in range(3):
        model(images)  # running statistics
    return model.eval(), images


def exact_logits(model, images):
    model = model.double()
    for layer in model.body.equilibria():
        layer.solver = Anderson(tol=1e-11)
    with torch.no_grad():
        return model(images.double())


@pytest.mark.parametrize("sharp", [1.0, 0.02])
def test_decided_classes_are_those_of_the_exact_equilibrium(sharp):
    model, images = model_and_images()
    head = a(PooledHead, model.head)
    with torch.no_grad():
        head.weight.mul_(sharp)
        head.bias.mul_(sharp)
    output = predict_adaptively(model, images)
    exact = exact_logits(model, images).argmax(1)
    assert output.decided.float().mean() > 0.95
    assert torch.equal(output.logits.argmax(1)[output.decided], exact[output.decided])
    assert output.steps.min() < output.steps.max()


@pytest.mark.parametrize("tol", [1e-1, 1e-3])
def test_never_more_steps_than_a_solve(tol):
    """Leads so small that none is decided: every sample stops where its solve would."""
    model, images = model_and_images(kernel="linear", norm_bound=0.99)
    for layer in model.body.equilibria():
        layer.solver = replace(layer.solver, tol=tol)
    head = a(PooledHead, model.head)
    with torch.no_grad():
        head.bias.zero_()
        head.weight.copy_(head.weight[:1] + 1e-6 * head.weight)
        solutions = model.run(images).solutions
    plain = torch.stack([solution.steps for solution in solutions]).amax(0)
    output = predict_adaptively(model, images)
    assert torch.equal(output.steps[~output.decided], plain[~output.decided])
    assert (output.steps <= plain).all()
    assert (~output.decided).sum() > 10


def test_the_rule_is_sharp():
    """Moving each branch by its error in the worst direction changes exactly the classes that the
    rule does not declare safe."""
    torch.manual_seed(0)
    classes, sizes, count = 5, (7, 4), 200
    slopes = [torch.randn(classes, n, dtype=torch.float64) for n in sizes]
    reach = torch.stack([torch.cdist(s, s) for s in slopes])
    logits = 3 * torch.randn(count, classes, dtype=torch.float64)
    errors = torch.rand(len(sizes), count, dtype=torch.float64) / 2
    safe = _Leads.of(logits, errors, reach).certainty() > 1
    top, flips = logits.argmax(1), torch.zeros(count, dtype=torch.bool)
    for other in range(classes):
        moved = logits.clone()
        for j, s in enumerate(slopes):
            direction = s[other] - s[top]
            length = direction.norm(dim=1, keepdim=True).clamp(min=1e-300)
            moved += (errors[j, :, None] * direction / length) @ s.T
        rows = torch.arange(count)
        flips |= (moved[rows, other] > moved[rows, top]) & (top != other)
    assert torch.equal(safe, ~flips)
    assert 0.1 < safe.double().mean() < 0.9


def undecided_model():
    """Classes so close that some change between the first step and the last."""
    model, images = model_and_images(kernel="linear", norm_bound=0.95)
    head = a(PooledHead, model.head)
    with torch.no_grad():
        head.bias.sub_(model(images).mean(0))
    return model, images


def test_with_the_caution_that_was_found_no_class_of_these_images_changes():
    model, images = undecided_model()
    classes = model(images).argmax(1)
    careless = predict_adaptively(model, images, caution=0.0)
    assert (careless.steps == 1).all()
    assert (careless.logits.argmax(1) != classes).any()
    caution = calibrate(model, images)
    found, proved = (
        predict_adaptively(model, images, caution=caution),
        predict_adaptively(model, images),
    )
    assert torch.equal(found.logits.argmax(1), classes)
    assert 1 < found.steps.double().mean() < proved.steps.double().mean()
    # What is proved does not depend on when one stops.
    assert (found.decided <= proved.decided).all()


def test_evidence_is_the_certainty_of_classes_that_were_left():
    model, images = undecided_model()
    evidence = Evidence.from_solving(model, images)
    wrong = model(images).argmax(1) != predict_adaptively(model, images, caution=0.0).logits.argmax(
        1
    )
    assert torch.equal(evidence.needed[wrong] > 0, torch.ones(int(wrong.sum()), dtype=torch.bool))
    # Where the class after one step was left, its nearest class gained more than its lead.
    assert (evidence.used[wrong] > 0).all()
    largest_needed = float(evidence.needed.max())
    for share, changes in ((1.001, False), (0.999, True)):
        found = predict_adaptively(model, images, caution=share * largest_needed)
        assert bool((found.logits.argmax(1) != model(images).argmax(1)).any()) == changes


def test_caution_covers_what_was_needed_and_all_but_the_rarest_gains():
    gains = torch.linspace(0.001, 0.2, 200)
    calm = Evidence(torch.zeros(200), gains)
    assert calm.caution() == pytest.approx(0.198)
    joined = Evidence.joined([calm, Evidence(torch.tensor([0.5]), torch.tensor([0.0]))])
    assert joined.caution() == 0.5
    assert Evidence(torch.zeros(3), -torch.ones(3)).caution() == 0.0
    assert Evidence(torch.full((3,), 2.0), torch.ones(3)).caution() == 1.0
    assert Evidence(torch.empty(0), torch.empty(0)).caution() == 1.0


@pytest.mark.parametrize("caution", [-0.1, 1.5, float("nan"), True])
def test_cautions_that_make_no_sense_are_refused(caution):
    model, images = model_and_images()
    with pytest.raises(OptionError, match="caution"):
        predict_adaptively(model, images, caution=caution)


@pytest.mark.parametrize("kernel", [Linear, Gaussian])
def test_the_distance_to_the_equilibrium_is_bounded(kernel):
    worst = 0.0
    for seed in range(30):
        torch.manual_seed(seed)
        problem = Problem(NonNegative(), kernel(Dense(6, 6, norm_bound=0.95))).double()
        bound = Proximal(problem).bind(2 * torch.randn(16, 6, dtype=torch.float64))
        star = tensor(solve(bound, bound.start(), Anderson(tol=1e-13)).state)
        curvature = bound.curvature()
        factor = largest(curvature.contraction) / (1 - largest(curvature.high))
        z = star + torch.randn_like(star) * torch.rand(16, 1, dtype=torch.float64)
        image = bound(z).detach()
        ratio = (image - star).norm(dim=1) / (factor * (image - z).norm(dim=1))
        worst = max(worst, float(ratio.max()))
    assert 0.02 < worst <= 1


def test_models_without_the_bound_are_refused():
    images = torch.rand(2, 1, 8, 8)
    with pytest.raises(OptionError, match="not those of one hidden problem"):
        predict_adaptively(classifier("mopteq_digits").eval(), images)
    with pytest.raises(OptionError, match="training mode"):
        predict_adaptively(classifier("geq_digits"), images)
    free = classifier("geq_digits", normalization="weight_norm").eval()
    with torch.no_grad():
        for layer in free.body.equilibria():
            operator = a(PatchGaussian, known(layer.problem).similarity).operator
            known(a(WeightedOperator, operator).gain).mul_(10)
    with pytest.raises(OptionError, match="strongly convex"):
        predict_adaptively(free, images)
