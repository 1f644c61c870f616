"""Certified accuracy against attacks."""

import math

import pytest
import torch

import opteq
from narrow import a
from opteq.data import load_data
from opteq.data.dataset import MemoryImages
from opteq.errors import OptionError
from opteq.theory import certificate
from opteq.theory.robustness import (
    certified_radius,
    exact_radius,
    predicted_radius,
    robust_accuracy,
    survivors,
    withstands_all,
)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    model = opteq.create_model("geq_digits")
    some = a(MemoryImages, load_data("digits").train.subset(torch.arange(128)))
    images, labels = some.images.float() / 255, some.labels
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), images[:32], labels[:32]


def test_no_attack_succeeds_within_the_certified_radius(trained):
    model, images, labels = trained
    L = certificate(model).lipschitz
    with torch.no_grad():
        radius = certified_radius(model(images), labels, L)
    assert (radius > 0).float().mean() > 0.5
    # Attacks of exactly each image's radius, by groups of similar ones.
    for index in radius.argsort().split(8):
        reach = float(radius[index].min())
        if reach > 0:
            assert withstands_all(model, images[index], labels[index], reach, steps=5).all()


def test_the_truth_lies_between(trained):
    model, images, labels = trained
    radii = (1e-4, 0.05, 0.5, 2.0)
    found = robust_accuracy(model, [(images, labels)], radii, steps=4)
    assert found.images == 32
    assert 0 < found.stretch < found.lipschitz
    for certified, attacked in zip(found.certified, found.attacked, strict=True):
        assert certified <= attacked <= found.clean
    assert list(found.attacked) == sorted(found.attacked, reverse=True)
    assert found.attacked[-1] < found.clean  # the attack is one
    assert found.certified[0] > 0.5 > found.certified[-1]  # and so is the certificate


def test_default_radii_tell_something_about_the_model(trained):
    """Some of them lie among the certified ones, however small these are."""
    model, images, labels = trained
    found = robust_accuracy(model, [(images[:16], labels[:16])], steps=1)
    assert found.median_radius < 0.1
    assert any(0 < share < found.clean for share in found.certified)
    assert any(radius <= 2 * found.median_radius for radius in found.radii)
    assert 0.1 in found.radii
    assert list(found.radii) == sorted(found.radii)
    assert found.attacked[-1] > 0
    share = sum(radius >= found.median_radius for radius in found.certified_radii) / 16
    assert f"{found.median_radius:.2g} (2-norm" in found.summary()
    assert f"{100 * share:.1f}%" in found.summary()


def test_survivors_are_those_of_each_radius(trained):
    """And fewer for a larger radius; what is wrong from the start is lost at all."""
    model, images, labels = trained
    labels = labels.clone()
    with torch.no_grad():
        labels[0] = (model(images[:1]).argmax(1) + 1) % 10
    small, large = survivors(model, images[:12], labels[:12], (0.05, 1.0), steps=3)
    assert not small[0]
    assert bool((small | ~large).all())
    assert int(small.sum()) > int(large.sum())
    alone = withstands_all(model, images[:12], labels[:12], 0.05, steps=3)
    assert int((alone != small).sum()) <= 1  # random starts


def test_radius_is_that_of_a_linear_classifier():
    """For logits Ax the bound with L = |A| is at most the exact distance to the boundary."""
    torch.manual_seed(0)
    A = torch.randn(4, 7, dtype=torch.float64)
    x = torch.randn(100, 7, dtype=torch.float64)
    logits = x @ A.T
    labels = logits.argmax(1)
    L = float(torch.linalg.matrix_norm(A, 2))
    exact = torch.full((100,), math.inf, dtype=torch.float64)
    for other in range(4):
        normal = A[labels] - A[other]
        lead = (x * normal).sum(1) / normal.norm(dim=1)
        exact = torch.where(labels == other, exact, torch.minimum(exact, lead))
    assert bool((certified_radius(logits, labels, L) <= exact).all())


def test_bad_settings_are_refused(trained):
    model, images, labels = trained
    with pytest.raises(OptionError, match="above 0"):
        robust_accuracy(model, [(images, labels)], (0.0,))
    with pytest.raises(OptionError, match="training mode"):
        robust_accuracy(opteq.create_model("geq_digits"), [(images, labels)])


def test_only_models_made_to_be_certified_say_how_certain_they_are(trained):
    model, images, _ = trained
    assert predicted_radius(model, images[:4]) is None
    torch.manual_seed(0)
    bounded = opteq.create_model("geq_digits", certified=True).eval()
    found = predicted_radius(bounded, images[:4])
    labels = bounded(images[:4]).argmax(1)
    torch.testing.assert_close(found, exact_radius(bounded, images[:4], labels))
