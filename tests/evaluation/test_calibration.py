"""Calibration figures against NumPy and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from opteq.errors import ShapeError
from opteq.evaluation.calibration import (
    brier_score,
    calibration_figures,
    detection_auroc,
    negative_log_likelihood,
    prediction_divergence,
    reliability,
    uniform_divergence,
)


def sample(seed, count=400, classes=6, sharp=3.0):
    generator = torch.Generator().manual_seed(seed)
    logits = sharp * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (count,), generator=generator)


def with_extremes(seed):
    """Some confidences are exactly 1, and those of their other classes exactly 0."""
    logits, labels = sample(seed)
    logits[:50, 0] += 5000
    logits[50:70] = 0.0  # exactly 1/6
    return logits, labels


def numpy_calibration_error(logits, labels, bins):
    p = logits.softmax(1).numpy()
    confidence, predicted = p.max(1), p.argmax(1)
    edges = np.linspace(0, 1, bins + 1)
    total = 0.0
    for i in range(bins):
        inside = (confidence > edges[i]) & (confidence <= edges[i + 1])
        if i == 0:
            inside |= confidence == 0
        if inside.any():
            gap = (predicted[inside] == labels.numpy()[inside]).mean() - confidence[inside].mean()
            total += inside.mean() * abs(gap)
    return total


@pytest.mark.parametrize("bins", [1, 7, 10, 15])
@pytest.mark.parametrize("make", [sample, with_extremes])
def test_calibration_error(make, bins):
    for seed in range(5):
        logits, labels = make(seed)
        found = reliability(logits, labels, bins=bins)
        expected = numpy_calibration_error(logits, labels, bins)
        assert found.error == pytest.approx(expected, abs=1e-12)
        assert float(found.count.sum()) == len(labels)


def test_edges_belong_to_the_bin_below():
    """With two classes and 10 bins, confidences of exactly 0.5, 0.6, ..., 1."""
    p = torch.tensor([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], dtype=torch.float64)
    logits = torch.stack([p, 1 - p], 1).log()
    found = reliability(logits, torch.zeros(6, dtype=torch.long), bins=10)
    exact = logits.softmax(1).amax(1)
    expected = torch.zeros(10, dtype=torch.float64)
    for value in exact.tolist():
        expected[next(i for i in range(10) if value <= (i + 1) / 10)] += 1
    assert torch.equal(found.count, expected)
    assert found.count[-1] >= 1  # a confidence of 1 has a bin


@pytest.mark.parametrize("make", [sample, with_extremes])
def test_likelihood_brier_and_divergence(make):
    logits, labels = make(3)
    p = logits.softmax(1).numpy()
    onehot = np.eye(6)[labels.numpy()]
    assert brier_score(logits, labels) == pytest.approx(
        ((p - onehot) ** 2).sum(1).mean(), abs=1e-12
    )
    if make is sample:  # others have probabilities of exactly 0, whose logarithm NumPy has not
        expected = log_loss(labels.numpy(), p, labels=range(6))
        assert negative_log_likelihood(logits, labels) == pytest.approx(expected, abs=1e-12)
        kl = (1 / 6 * np.log((1 / 6) / p)).sum(1).mean()
        assert uniform_divergence(logits) == pytest.approx(kl, abs=1e-12)
    assert np.isfinite(negative_log_likelihood(logits, labels))
    assert uniform_divergence(torch.zeros(4, 6)) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("make", [sample, with_extremes])
def test_detection(make):
    known, unknown = make(0)[0], sample(1, sharp=1.0, count=170)[0]
    unknown[:9] = known[:9]  # ties
    scores = torch.cat([known, unknown]).softmax(1).amax(1).numpy()
    truth = np.r_[np.ones(len(known)), np.zeros(len(unknown))]
    expected = roc_auc_score(truth, scores)
    assert detection_auroc(known, unknown) == pytest.approx(expected, abs=1e-12)


def test_all_figures_and_bad_input():
    logits, labels = sample(0)
    found = calibration_figures(logits, labels, unseen=logits[:10])
    assert set(found) >= {"calibration_error", "brier", "unknown_kl", "detection_auroc"}
    with pytest.raises(ShapeError, match="belong together"):
        brier_score(logits, labels[:3])
    with pytest.raises(ShapeError, match="empty"):
        detection_auroc(logits, logits[:0])


@pytest.mark.parametrize("make", [sample, with_extremes])
def test_the_other_reading_of_the_unknown_divergence(make):
    from scipy.special import softmax
    from scipy.stats import entropy

    logits = make(0)[0].double()
    p = softmax(logits.numpy(), axis=1)
    expected = np.mean(np.log(p.shape[1]) - entropy(p, axis=1))
    assert prediction_divergence(logits) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ShapeError, match="samples, classes"):
        prediction_divergence(logits[0])
