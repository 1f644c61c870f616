"""Figures against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn import metrics

from opteq.data.dataset import VOID
from opteq.training.tally import Tally


def test_figures_equal_scikit_learn():
    torch.manual_seed(0)
    logits, labels = torch.randn(200, 5, dtype=torch.float64), torch.randint(0, 5, (200,))
    tally = Tally.empty(5)
    for part, truth in zip(logits.split(60), labels.split(60), strict=True):
        tally.see(part, truth, [])
    found = tally.figures()
    guess = logits.argmax(1)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(labels, guess), abs=1e-12)
    chances = logits.softmax(1).numpy()
    assert found["loss"] == pytest.approx(metrics.log_loss(labels, chances), abs=1e-12)
    assert np.array_equal(tally.confusion.numpy(), metrics.confusion_matrix(labels, guess))
    assert "mean_iou" not in found


def test_segmentation_leaves_void_pixels_out():
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 4, 6, 5), torch.randint(0, 4, (3, 6, 5))
    labels[0, :2] = VOID
    tally = Tally.empty(4)
    tally.see(logits, labels, [])
    found = tally.figures()
    known = labels != VOID
    truth, guess = labels[known].numpy(), logits.argmax(1)[known].numpy()
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(truth, guess), abs=1e-12)
    iou = metrics.jaccard_score(truth, guess, average="macro")
    assert found["mean_iou"] == pytest.approx(iou, abs=1e-12)
    recall = metrics.recall_score(truth, guess, average="macro")
    assert found["mean_accuracy"] == pytest.approx(recall, abs=1e-12)


def test_tallies_of_processes_add_up():
    torch.manual_seed(0)
    logits, labels = torch.randn(90, 3), torch.randint(0, 3, (90,))
    parts = [Tally.empty(3) for _ in range(3)]
    parts[0].see(logits, labels, [])
    parts[1].see(logits[:40], labels[:40], [])
    parts[2].see(logits[40:], labels[40:], [])
    joined = Tally.from_numbers(parts[1].numbers() + parts[2].numbers(), parts[1].failures)
    assert joined.figures() == pytest.approx(parts[0].figures())


def test_five_likeliest_classes():
    from sklearn.metrics import top_k_accuracy_score

    torch.manual_seed(0)
    logits, labels = torch.randn(60, 8, dtype=torch.float64), torch.randint(0, 8, (60,))
    tally = Tally.empty(8)
    for part in (slice(0, 25), slice(25, 60)):
        tally.see(logits[part], labels[part], [])
    expected = top_k_accuracy_score(labels, logits, k=5, labels=range(8))
    assert tally.figures()["top5"] == pytest.approx(expected, abs=1e-12)
    again = Tally.from_numbers(tally.numbers(), tally.failures)
    assert again.figures()["top5"] == pytest.approx(expected, abs=1e-12)
    few = Tally.empty(5)
    few.see(logits[:, :5], labels.clamp(max=4), [])
    assert "top5" not in few.figures()  # five of five would say nothing
