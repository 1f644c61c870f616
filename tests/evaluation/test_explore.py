"""What if: damaged images and other solves, as the explorer shows them."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

import opteq
from narrow import known
from opteq.data import load_data
from opteq.data.memory import memory_data
from opteq.data.splits import sample
from opteq.errors import DataError, OpteqError, OptionError
from opteq.evaluation.explore import Damage, Handling, damaged, drawn, handled
from opteq.gradient import Unrolled
from opteq.kernels import GammaRule, Gaussian
from opteq.kernels.gaussian import GaussianKernel
from opteq.layer import equilibria
from opteq.operators import Dense
from opteq.report.explorer_page import AS_TRAINED, _shown
from opteq.workflow.explore import gather

NOTHING = (0, 0, 0, 0, AS_TRAINED, AS_TRAINED, AS_TRAINED, 0)


@pytest.fixture(scope="module")
def model():
    return opteq.create_model("geq_digits", pretrained=True).eval()


@pytest.fixture(scope="module")
def digits():
    images, labels = sample(load_data("digits").test, 20)
    return images.float() / 255, labels


@pytest.fixture(scope="module")
def explored():
    return gather(["geq_digits"])


def test_blur_is_scipys(model):
    x = torch.rand(1, 8, 8)
    found = damaged(model, x, Damage(blur=0.9))
    wanted = gaussian_filter(x[0].double().numpy(), 0.9, mode="mirror", truncate=3 / 0.9)
    np.testing.assert_allclose(found[0].numpy(), wanted, atol=1e-5)


def test_noise_is_as_large_as_asked_and_the_same_every_time(model):
    x = torch.full((1, 200, 200), 0.5)
    found = damaged(model, x, Damage(noise=0.1))
    assert float((found - x).std()) == pytest.approx(0.1, rel=0.02)
    assert torch.equal(found, damaged(model, x, Damage(noise=0.1)))
    assert not torch.equal(found, damaged(model, x, Damage(noise=0.1, seed=1)))


def test_a_square_in_the_middle_is_hidden(model, digits):
    x = digits[0][0]
    found = damaged(model, x, Damage(hidden=0.5))
    assert (found[:, 2:6, 2:6] == 0.5).all()
    outside = torch.ones(8, 8, dtype=torch.bool)
    outside[2:6, 2:6] = False
    assert torch.equal(found[:, outside], x[:, outside])


def test_an_attack_stays_within_its_step_and_harms_more_than_noise(model, digits):
    x, labels = digits
    attacked = torch.stack([damaged(model, image, Damage(attack=0.15)) for image in x])
    assert float((attacked - x).abs().max()) <= 0.15 + 1e-6
    assert attacked.min() >= 0
    assert attacked.max() <= 1
    noisy = (x + 0.15 * torch.randn(x.shape).sign()).clamp(0, 1)
    with torch.no_grad():
        logits = [model(images).log_softmax(1) for images in (x, noisy, attacked)]
    clean, chance, worst = (float(each.gather(1, labels[:, None]).mean()) for each in logits)
    assert worst < chance - 1 < clean


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(Dense(4, 3), gamma=0.5),
        Gaussian(Dense(4, 3), gamma=torch.tensor(0.5)),
        Gaussian(Dense(4, 3), gamma=0.5, learn_gamma=True),
        Gaussian(Dense(4, 3), gamma=GammaRule(0.5)),
    ],
    ids=["number", "tensor", "learned", "rule"],
)
def test_gamma_is_scaled_however_it_is_given(kernel):
    before = float(torch.as_tensor(kernel.gamma).detach())
    kernel.scale_gamma(4.0)
    assert float(torch.as_tensor(kernel.gamma).detach()) == pytest.approx(4 * before, rel=1e-6)
    with pytest.raises(OptionError):
        kernel.scale_gamma(0.0)


def test_a_model_that_is_solved_otherwise_is_a_copy(model, digits):
    x = digits[0]
    gammas = [float(k.gamma) for k in model.modules() if isinstance(k, GaussianKernel)]
    with torch.no_grad():
        before = model(x)
        closed = handled(model, Handling(gamma=8.0))
        gates = [known(m.run(x).solutions[0].gates) for m in (model, closed)]
        other = handled(model, Handling(solver="picard", tolerance=1e-6))
        rough = handled(model, Handling(steps=1))
        assert gates[1].mean() < gates[0].mean() - 0.1
        torch.testing.assert_close(other(x), before, atol=2e-3, rtol=0)
        assert other.run(x).solutions[0].residual.max() <= 1e-6
        assert float((rough(x) - before).abs().max()) > 1e-3
        assert torch.equal(model(x), before)
    assert all(layer.gradient == Unrolled(steps=1) for layer in equilibria(rough))
    assert [float(k.gamma) for k in model.modules() if isinstance(k, GaussianKernel)] == gammas


def test_drawings_are_brought_to_the_middle(model):
    canvas = np.full((280, 280, 3), 255, dtype=np.uint8)
    canvas[20:100, 200:220] = 0  # a bar, in a corner
    found = drawn(model, canvas)
    assert found.shape == (1, 8, 8)
    weight = found[0].sum(0)
    assert float((weight * torch.arange(8)).sum() / weight.sum()) == pytest.approx(3.5, abs=0.3)
    assert found[0, 4, 3:5].mean() > 0.5 > found[0, 4, 0]  # light on dark, as digits are
    with pytest.raises(DataError, match="Nothing is drawn"):
        drawn(model, np.full_like(canvas, 255))


def test_the_page_shows_an_answer_for_each_model():
    explored = gather(["geq_digits", "mopteq_digits"])
    assert list(explored.models) == ["geq_digits", "mopteq_digits"]
    found = _shown(explored, "a test image", 3, None, None, NOTHING)
    assert found[-1] == ""
    assert len(found) == 9
    for chances, words, maps, course in (found[:4], found[4:8]):
        assert sum(chances.values()) == pytest.approx(1, abs=1e-4)
        assert max(chances, key=chances.get) == explored.labels[3]
        assert f"Taken for {explored.labels[3]}" in words
        assert maps.ndim == course.ndim == 3


@pytest.mark.parametrize(
    ("source", "content", "problem"),
    [
        ("a drawing", None, "Nothing is drawn"),
        ("a file", None, "There is no file"),
        ("a file", b"no image", r"broken.png is not an image"),
    ],
)
def test_what_cannot_be_shown_is_told_without_where_it_was_kept(
    explored, tmp_path, source, content, problem
):
    path = tmp_path / "broken.png"
    if content is not None:
        path.write_bytes(content)
    upload = None if content is None else str(path)
    *parts, status = _shown(explored, source, 0, None, upload, NOTHING)
    assert parts == [None, "", None, None]
    assert problem in status.replace("\\", "")
    assert str(tmp_path) not in status


def test_runs_that_cannot_be_explored_are_refused(tmp_path):
    with pytest.raises(OptionError, match="given twice"):
        gather(["geq_digits", "geq_digits"])
    images, labels = torch.rand(8, 1, 16, 16), torch.arange(8) % 10
    wide = opteq.train(
        "resnet_digits",
        data=memory_data((images, labels), (images, labels), classes=list("0123456789")),
        run_dir=tmp_path / "wide",
        quiet=True,
        train={"steps": 1, "batch_size": 4},
    )
    with pytest.raises(OptionError, match="images of shape 1x8x8, wide of 1x16x16"):
        gather(["geq_digits", wide])
    with pytest.raises(OpteqError, match="nowhere"):
        gather([tmp_path / "nowhere"])


OTHERS = {
    "restorer": ("restorer", {"filters": 8, "side": 5}, 1, "opteq restore"),
    "seeded": ("random_walker", {"classes": 2}, 3, r"load\(run\)\(images, marks\)"),
    "mazes": ("wires_mazes", {}, 3, "opteq predict"),
}


@pytest.mark.parametrize("which", OTHERS)
def test_models_of_other_tasks_are_not_explored(which, tmp_path):
    name, options, channels, remedy = OTHERS[which]
    model = opteq.create_model(name, **options)
    model.image_shape, model.class_names = (channels, 13, 13), ("a", "b")
    kept = opteq.save(model, tmp_path / "kept")
    with pytest.raises(OptionError, match=f"explore is for classifiers of images.*{remedy}"):
        gather([kept])


def test_a_saved_model_is_explored_without_test_images(model, tmp_path):
    found = gather([opteq.save(model, tmp_path / "kept")])
    assert len(found.images) == 0
    assert "does not say which data" in found.missing


def test_models_are_prepared_once_for_each_way_of_solving(explored):
    closed = explored.solved("geq_digits", Handling(gamma=4.0))
    assert explored.solved("geq_digits", Handling(gamma=4.0)) is closed
    other = explored.solved("geq_digits", Handling(gamma=2.0))
    gammas = [
        next(float(k.gamma) for k in one.modules() if isinstance(k, GaussianKernel))
        for one in (closed, other)
    ]
    assert gammas[0] == pytest.approx(2 * gammas[1])
    for n in range(20):
        explored.solved("geq_digits", Handling(steps=n + 1))
    assert len(explored.prepared) <= 8
