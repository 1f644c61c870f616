"""Convergence, channel correlations, reconstructed perturbations, cost."""

import numpy as np
import pytest
import torch

import opteq
from narrow import a, classifier, known, tensor
from opteq.data import load_data
from opteq.data.dataset import MemoryImages
from opteq.errors import OptionError
from opteq.evaluation.convergence import convergence, mean_steps, plain, until_rounding
from opteq.evaluation.correlation import correlations
from opteq.evaluation.efficiency import efficiency, kept_bytes
from opteq.evaluation.reconstruction import BINOMIAL, RECONSTRUCTED, UNIFORM, under_reconstruction
from opteq.gradient import Implicit, Unrolled
from opteq.models.bodies import to_side


@pytest.fixture(scope="module")
def digits():
    found = a(MemoryImages, load_data("digits").test).subset(range(24))
    return found.images.float() / 255, found.labels


def test_residuals_fall_and_are_those_of_the_map(digits):
    torch.manual_seed(0)
    model = classifier("geq_digits").eval().double()
    x = digits[0].double()
    found = convergence(model, x, steps=15)
    assert len(found) == 2
    features = model.stem(x)
    for one in found:
        assert len(one.median) == len(one.high) == len(known(one.objective)) == 15
        assert all(a <= b + 1e-15 for a, b in zip(one.median, one.high, strict=True))
        assert one.median[8] < 1e-4 < one.median[1]
    # Plain iteration: the k-th residual is |T(z_k) - z_k| / |T(z_k)| with z_0 = 0.
    layer, u = model.body.parts(features)[0]
    bound, z = layer.map.bind(u), torch.zeros_like(layer(u))
    medians = []
    with torch.no_grad():
        for _ in range(5):
            Tz = tensor(bound(z))
            ratio = (Tz - z).flatten(1).norm(dim=1) / Tz.flatten(1).norm(dim=1)
            medians.append(float(ratio.median()))
            z = Tz
    np.testing.assert_allclose(convergence(model, x, solver=plain(5))[0].median, medians, rtol=1e-9)


def test_distances_of_the_objective_end_where_rounding_begins(digits):
    torch.manual_seed(0)
    model = classifier("geq_digits").eval()
    for one in convergence(model, digits[0], steps=15):
        height = abs(known(one.objective)[-1])
        assert one.rounding == pytest.approx(height * torch.finfo(torch.float32).eps, rel=1e-3)
        shown = until_rounding(known(one.above_end), one.rounding)
        assert 1 < len(shown) < 15
        assert min(shown) == shown[-1] == one.rounding


def test_steps_grow_as_the_tolerance_falls(digits):
    torch.manual_seed(0)
    model = classifier("mopteq_digits").eval()
    assert 1 < mean_steps(model, digits[0], 1e-2) < mean_steps(model, digits[0], 1e-5)


def test_correlations_are_cosines(digits):
    torch.manual_seed(0)
    model = opteq.create_model("mopteq_digits", channels=6).eval()
    found = correlations(model, digits[0])
    with torch.no_grad():
        states = [s.double() for s in model.run(digits[0]).solutions[0].state]
    count, equal, different, first = len(states), [], [], None
    for i in range(count):
        a, b = states[i], states[(i + 1) % count]
        side = min(a.shape[-1], b.shape[-1])
        a, b = (to_side(z, side).flatten(2).numpy() for z in (a, b))
        cosine = np.array(
            [
                [
                    [
                        a[n, k] @ b[n, m] / (np.linalg.norm(a[n, k]) * np.linalg.norm(b[n, m]))
                        for m in range(6)
                    ]
                    for k in range(6)
                ]
                for n in range(len(a))
            ]
        )
        equal.append(np.einsum("nkk->nk", cosine).mean(1))
        off = ~np.eye(6, dtype=bool)
        different.append(np.abs(cosine)[:, off].mean(1))
        first = np.abs(cosine).mean(0).T if first is None else first
    first = known(first)
    np.testing.assert_allclose(found.heritage.numpy(), np.mean(equal, 0), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found.diversity.numpy(), np.mean(different, 0), rtol=1e-3)
    np.testing.assert_allclose(found.matrix.numpy(), first, rtol=1e-3, atol=1e-5)
    off = ~np.eye(6, dtype=bool)
    assert found.contrast == pytest.approx(np.diag(first).mean() / first[off].mean(), rel=1e-3)
    with pytest.raises(OptionError, match="one branch"):
        correlations(opteq.create_model("opteq_digits").eval(), digits[0])


def test_reconstruction_starts_at_the_clean_accuracy_and_harms_more_than_noise(digits):
    torch.manual_seed(0)
    model = classifier("mopteq_digits", middle=(24,), sides=(8,))
    train = a(MemoryImages, load_data("digits").train).subset(range(96))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(40):
        optimizer.zero_grad()
        logits = model(train.images.float() / 255)
        torch.nn.functional.cross_entropy(logits, train.labels).backward()
        optimizer.step()
    model.eval()
    x, y = digits
    found = under_reconstruction(model, x, y, [0.0, 1.0], trials=2)
    with torch.no_grad():
        clean = float((model(x).argmax(1) == y).double().mean())
    assert all(curve[0] == pytest.approx(clean) for curve in found.values())
    assert found[RECONSTRUCTED][1] < min(found[UNIFORM][1], found[BINOMIAL][1])
    with pytest.raises(OptionError, match="MOptEq"):
        under_reconstruction(classifier("opteq_digits").eval(), x, y, [0.1])


def test_unrolled_steps_keep_memory_and_implicit_gradients_do_not(digits):
    model = opteq.create_model("geq_digits")
    x, y = digits
    bare, ten, twenty, thirty = (
        kept_bytes(model, x, y, rule)
        for rule in (Implicit(), *(Unrolled(steps=n) for n in (10, 20, 30)))
    )
    assert ten > 1.5 * bare
    assert thirty - twenty == pytest.approx(twenty - ten, rel=0.05)


def test_cost_is_measured_and_nothing_stays_behind(digits):
    model = opteq.create_model("geq_digits").eval()
    x, y = digits
    before = {k: v.clone() for k, v in model.state_dict().items()}
    found = efficiency(model, x, y, {"own": None, "unrolled": Unrolled(steps=30)}, seconds=0.0)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert min(found["own"].forward, found["own"].training) > 0
    assert found["own"].forward > found["unrolled"].forward
    assert found["unrolled"].steps == 31
    assert not model.training
    assert all(p.grad is None for p in model.parameters())
    assert (
        efficiency(opteq.create_model("resnet_digits"), x, y, {"own": None}, seconds=0.0)[
            "own"
        ].steps
        == 0
    )
