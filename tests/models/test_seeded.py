"""Segmentation from marked pixels: the random walker, exactly; learning; marks."""

import numpy as np
import pytest
import torch

import opteq
from opteq.data.dataset import VOID
from opteq.data.measuring import marked
from opteq.errors import ShapeError
from opteq.models.seeded import Seeded


def model_of(name="random_walker", **options) -> Seeded:
    torch.manual_seed(0)
    found = opteq.create_model(name, **options)
    assert isinstance(found, Seeded)
    return found.eval()


def scene():
    torch.manual_seed(1)
    labels = torch.zeros(2, 18, 22, dtype=torch.long)
    labels[:, :, 9:] = 1
    labels[:, 10:, 4:16] = 2
    colours = torch.tensor([[0.2, 0.3, 0.8], [0.7, 0.2, 0.2], [0.3, 0.8, 0.3]])
    x = colours[labels].permute(0, 3, 1, 2) + 0.08 * torch.randn(2, 3, 18, 22)
    return x.clamp(0, 1), labels


def test_it_is_the_random_walker_of_the_literature():
    """Its chances against a dense solve of the Laplacian with the marks eliminated."""
    x, labels = scene()
    marks = marked(labels, 3, at_random=False)
    model = model_of(classes=3, beta=40.0, solver={"name": "conjugate_gradients", "tol": 1e-10})
    with torch.no_grad():
        chances = model(x, marks).exp()[0].double().numpy()
    image, seeds = x[0].double().permute(1, 2, 0).numpy(), marks[0].numpy()
    expected = _walk(image, seeds, 3, 40.0)
    # Marks are held by a thousand wires, not by infinitely many.
    assert np.abs(chances - expected).max() < 0.01
    assert (chances.argmax(0) == expected.argmax(0)).mean() > 0.99


def test_it_is_the_random_walker_of_scikit_image():
    """Whose weights have another unit, and whose marks are held exactly."""
    from skimage.segmentation import random_walker

    x, labels = scene()
    marks = marked(labels, 3, at_random=False)
    image = x[0].double().permute(1, 2, 0).numpy()
    beta = 40.0
    theirs = random_walker(
        image,
        np.where(marks[0].numpy() == VOID, 0, marks[0].numpy() + 1),
        beta=beta * 10 * image.std() * 3**0.5,
        mode="bf",
        channel_axis=-1,
        return_full_prob=True,
    )
    model = model_of(classes=3, beta=beta, solver={"name": "conjugate_gradients", "tol": 1e-10})
    with torch.no_grad():
        ours = model(x, marks).exp()[0].double().numpy()
    assert np.abs(ours - theirs).max() < 0.01


def _walk(image, seeds, classes, beta):
    height, width, _ = image.shape
    index = np.arange(height * width).reshape(height, width)
    L = np.zeros((height * width, height * width))
    steps = [(index[:, :-1], index[:, 1:]), (index[:-1], index[1:])]
    flat = image.reshape(-1, 3)
    for one, other in steps:
        for i, j in zip(one.ravel(), other.ravel(), strict=True):
            w = np.exp(-beta * ((flat[i] - flat[j]) ** 2).sum())
            L[i, j] -= w
            L[j, i] -= w
            L[i, i] += w
            L[j, j] += w
    known = seeds.ravel() != VOID
    held = np.eye(classes)[seeds.ravel()[known]]
    found = np.zeros((height * width, classes))
    found[known] = held
    rest = ~known
    found[rest] = np.linalg.solve(L[np.ix_(rest, rest)], -L[np.ix_(rest, known)] @ held)
    return found.T.reshape(classes, height, width)


def test_marks_are_classes_that_are_there_and_nothing_else():
    _, labels = scene()
    labels[0, 0] = VOID
    first = marked(labels, 4, at_random=False)
    known = first != VOID
    assert torch.equal(first[known], labels[known])
    for i in range(2):
        assert [int((first[i] == k).sum()) for k in range(3)] == [4, 4, 4]
    assert torch.equal(first, marked(labels, 4, at_random=False))
    assert torch.equal(first[1:], marked(labels[1:], 4, at_random=False))
    assert not torch.equal(first, marked(labels, 4, at_random=True))
    assert torch.equal(marked(labels, 10_000, at_random=False), labels)


def test_learned_wires_learn_where_colours_mislead():
    """Two textures of one colour: neighbours differ as much within a class as across its edge."""
    torch.manual_seed(0)
    labels = torch.zeros(8, 16, 16, dtype=torch.long)
    labels[:, :, 8:] = 1
    rows, columns = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    pattern = torch.where(labels == 0, (rows + columns) % 2, rows % 2).float()
    x = pattern[:, None].expand(-1, 3, -1, -1) * 0.6 + 0.2
    model = model_of("seeded_wires", channels=8, classes=2, beta=1.0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(40):
        marks = marked(labels, 3, at_random=True)
        loss = torch.nn.functional.cross_entropy(model(x, marks), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5]), losses


def test_images_without_marks_have_an_answer_and_wrong_marks_are_refused():
    x, labels = scene()
    model = model_of(classes=3)
    with torch.no_grad():
        logits = model(x)
    assert bool(logits.isfinite().all())
    with pytest.raises(ShapeError, match="marks"):
        model(x, labels[:, 1:])


def test_guesses_leave_chances_that_add_up():
    """However loud the network is; and without any mark the guesses alone decide."""
    x, labels = scene()
    model = model_of("seeded_wires", classes=3, channels=6)
    assert model.features is not None
    with torch.no_grad():
        for parameter in model.features.parameters():
            parameter.add_(torch.randn_like(parameter))
        for marks in (marked(labels, 3, at_random=False), torch.full_like(labels, VOID)):
            chances = model(x, marks).double().exp()
            torch.testing.assert_close(
                chances.sum(1), torch.ones(2, 18, 22, dtype=torch.float64), rtol=0, atol=2e-3
            )
            assert float(chances.min()) >= 0
