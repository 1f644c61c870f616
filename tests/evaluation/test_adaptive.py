"""Predictions that stop when the class is certain."""

from dataclasses import replace

import pytest
import torch

from narrow import a, classifier, known, tensor
from opteq.equilibrium.proximal import Proximal
from opteq.errors import OptionError
from opteq.evaluation.adaptive import _cannot_change, predict_adaptively
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
    safe = _cannot_change(logits, errors, reach)
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
