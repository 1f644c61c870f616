"""Predictions for files, and their explanations."""

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

import opteq
from narrow import known
from opteq.errors import DataError, OptionError
from opteq.evaluation.explain import explain
from opteq.evaluation.predict import Mask, Prediction, predict, predict_files, read_for
from opteq.models.registry import create_model
from opteq.report.explanation import draw_explanation, write_explanation
from opteq.report.masks import palette, write_mask
from opteq.workflow.predict import each_prediction, find_images, picture_stems, save_answers

DIGITS = ["geq_digits", "mopteq_digits", "opteq_digits", "resnet_digits", "proximal_digits"]


def model_of(name, **options):
    torch.manual_seed(0)
    model = create_model(name, **options).eval()
    model.class_names, model.image_shape = tuple("abcdefghij"), (1, 8, 8)
    return model


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for i in range(5):
        paths.append(tmp_path / "photos" / f"{i}.png")
        paths[-1].parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (11 + i, 14), dtype=np.uint8)).save(paths[-1])
    return paths


def test_batches_say_what_single_images_say(files):
    model = model_of("geq_digits")
    for layer in opteq.layer.equilibria(model):
        layer.solver = type(layer.solver)(tol=1e-6, max_steps=100)
    found = dict(predict_files(model, files, batch=2))
    assert list(found) == files
    for path, answer in found.items():
        alone = predict(model, read_for(model, path))
        assert isinstance(answer, Prediction)
        assert [name for name, _ in answer.classes] == [name for name, _ in alone.classes]
        assert answer.entropy == pytest.approx(alone.entropy, rel=1e-4)


def test_entropy_and_margin_by_hand(files):
    model = model_of("resnet_digits")
    x = read_for(model, files[0])
    with torch.no_grad():
        chances = model(x[None]).softmax(1)[0].double()
    found = predict(model, x, top=1)
    best = chances.sort(descending=True).values
    assert found.entropy == pytest.approx(float(-(chances * chances.log2()).sum()), rel=1e-5)
    assert found.margin == pytest.approx(float(best[0] - best[1]), rel=1e-4)
    assert len(found.classes) == 1


def test_a_file_that_is_no_image_is_answered_with_its_error(files, tmp_path):
    bad = tmp_path / "notes.png"
    bad.write_text("not an image")
    answers = list(each_prediction(model_of("resnet_digits"), [files[0], bad, files[1]], batch=2))
    assert [path for path, _ in answers] == [files[0], bad, files[1]]
    assert [isinstance(answer, DataError) for _, answer in answers] == [False, True, False]


def test_what_files_are_meant(files):
    folder = files[0].parent
    assert find_images([folder]) == files
    assert find_images([str(folder / "[01].png")]) == files[:2]
    assert find_images(["-"], io.StringIO(f"{files[2]}\n\n{files[0]}\n")) == [files[2], files[0]]
    assert find_images([files[0], folder]) == files  # each once
    empty = folder / "empty"
    empty.mkdir()
    for nothing in ([empty], [str(folder / "*.jpg")], ["-"]):
        with pytest.raises(DataError):
            find_images(nothing, io.StringIO(""))


def test_masks_have_the_size_of_the_file(tmp_path):
    model = model_of("fcn_segment_tiny", classes=3, in_channels=1)
    model.class_names, model.image_shape = ("a", "b", "c"), (1, 16, 32)
    path = tmp_path / "wide.png"
    Image.fromarray(np.zeros((40, 100), dtype=np.uint8)).save(path)
    ((_, mask),) = predict_files(model, [path])
    assert isinstance(mask, Mask)
    assert mask.labels.shape == (40, 100)
    # Of a file that is wider than the model's images, the sides were never seen.
    assert (mask.labels[:, :10] == 255).all()
    assert (mask.labels[:, 10:90] < 3).all()
    assert sum(share for _, share in mask.shares) == pytest.approx(1)
    first, second = save_answers(model, path, mask, tmp_path / "out" / "wide", explained=False)
    with Image.open(first) as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.array(image), mask.labels)
    assert second.stat().st_size > 100


def test_a_mask_follows_what_is_in_the_image(tmp_path):
    labels = np.zeros((8, 8), dtype=np.uint8)
    labels[:, 4:] = 1
    path = tmp_path / "x.png"
    Image.fromarray(np.full((8, 8, 3), 200, dtype=np.uint8)).save(path)
    _, overlay = write_mask(labels, path, tmp_path / "x", ["left", "right"])
    with Image.open(overlay) as image:
        pixels = np.array(image).astype(int)
    expected = (200 + palette(2).astype(int)) // 2
    assert np.abs(pixels[0, 0] - expected[0]).max() <= 1
    assert np.abs(pixels[0, 7] - expected[1]).max() <= 1


@pytest.mark.parametrize("name", DIGITS)
def test_every_kind_of_model_is_explained(name, tmp_path):
    model = model_of(name)
    x = torch.rand(1, 8, 8)
    found = explain(model, x)
    with torch.no_grad():
        chances = model(x[None]).softmax(1)[0]
    assert [p for _, p in found.classes] == pytest.approx(chances.sort(descending=True).values)
    assert found.words()[0].startswith(f"Taken for {found.classes[0][0]} (")
    assert bool(found.settling) == bool(found.traces) == (name != "resnet_digits")
    if found.settling:
        last = found.settling[max(found.settling)]
        assert last == pytest.approx([p for _, p in found.classes], abs=0.02)
    probabilities = draw_explanation(found, "an image").axes[5]
    assert probabilities.get_title(loc="left") == "probabilities"
    assert probabilities.get_xlim() == (0, 1)
    path = write_explanation(found, tmp_path / "why.png", "an image")
    with Image.open(path) as image:
        assert image.width > 1000


def test_the_rival_map_is_the_slope_of_the_lead():
    """Against finite differences in double precision."""
    model = model_of("geq_digits").double()
    for layer in opteq.layer.equilibria(model):
        layer.solver = type(layer.solver)(tol=1e-12, max_steps=300)
        layer.gradient = opteq.gradient.Implicit(tol=1e-12)
    x = torch.rand(1, 8, 8, dtype=torch.float64)
    found = explain(model, x)
    a, b = ("abcdefghij".index(name) for name, _ in found.classes[:2])

    def lead(image):
        with torch.no_grad():
            logits = model(image[None])[0]
        return float(logits[a] - logits[b])

    for i, j in ((0, 0), (3, 4), (7, 2)):
        step = torch.zeros_like(x)
        step[0, i, j] = 1e-5
        slope = (lead(x + step) - lead(x - step)) / 2e-5
        assert found.rival[i, j] == pytest.approx(slope, rel=1e-3, abs=1e-8)


def test_explanations_overwrite_nothing(files, tmp_path):
    model = model_of("resnet_digits")
    target = tmp_path / "why.png"
    opteq.explain(model, files[0], output=target)
    before = target.read_bytes()
    with pytest.raises(OptionError, match="exists already"):
        opteq.explain(model, files[1], output=target)
    assert target.read_bytes() == before
    with pytest.raises(OptionError, match=r"\.png"):
        opteq.explain(model, files[1], output=tmp_path / "why.jpg")


def test_a_certified_prediction_is_explained_with_its_radius():
    found = opteq.explain(model_of("proximal_digits"), torch.rand(1, 8, 8))
    assert known(found.radius) > 0
    assert math.isfinite(known(found.radius))
    assert any("Proved" in line for line in found.words())


def test_answers_that_did_not_converge_have_no_radius(files):
    model = model_of("proximal_digits")
    for layer in opteq.layer.equilibria(model):
        layer.solver = type(layer.solver)(tol=1e-6, max_steps=1, on_failure="ignore")
    ((_, found),) = each_prediction(model, files[:1])
    assert isinstance(found, Prediction)
    assert found.radius is None
    assert "not all equilibria converged" in str(found)


def test_files_of_one_name_in_two_folders_get_pictures_of_their_own(tmp_path):
    paths = [tmp_path / "photos" / name for name in ("cat/0.jpg", "dog/0.jpg")]
    stems = picture_stems(paths, tmp_path / "why")
    assert list(stems.values()) == [tmp_path / "why" / name for name in ("cat/0", "dog/0")]
    with pytest.raises(OptionError, match="Two images"):
        picture_stems([tmp_path / "0.jpg", tmp_path / "0.png"], tmp_path / "why")
    # Names that climb out of a folder do not lead the pictures out of theirs.
    climbing = [tmp_path / "a" / ".." / ".." / "x.png", tmp_path / "b" / "y.png"]
    for stem in picture_stems(climbing, tmp_path / "why").values():
        assert stem.resolve().is_relative_to(tmp_path / "why")
