"""Corruptions: kinds, severities, reproducibility, and figures that survive a stop."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import opteq
from narrow import a
from opteq.data import load_data
from opteq.data.corruption import FAMILIES, KINDS, corrupted
from opteq.data.dataset import MemoryImages
from opteq.errors import OptionError, UnknownOptionError
from opteq.evaluation.corruption import Corrupted, mean_corruption_error, under_corruption
from opteq.evaluation.finished import FinishedFigures
from opteq.models.network import Network, Output

pytest.importorskip("imagecorruptions")


@pytest.fixture(scope="module")
def digits():
    found = a(MemoryImages, load_data("digits").test).subset(range(12))
    return found.images, found.labels


def test_there_are_the_nineteen_of_the_package():
    from imagecorruptions import get_corruption_names

    assert sorted(KINDS) == sorted(get_corruption_names("all"))
    assert len(set(KINDS)) == 19 == sum(len(kinds) for kinds in FAMILIES.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_images(kind, digits):
    images = digits[0][:3]
    first = corrupted(images, kind, 3)
    assert first.shape == images.shape
    assert first.dtype == torch.uint8
    torch.testing.assert_close(corrupted(images, kind, 3), first, rtol=0, atol=0)


def test_an_rgb_image_is_what_the_package_makes():
    from imagecorruptions import corrupt

    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    ours = corrupted(torch.from_numpy(image).permute(2, 0, 1)[None], "contrast", 2)
    theirs = corrupt(image, severity=2, corruption_name="contrast")
    np.testing.assert_array_equal(ours[0].permute(1, 2, 0).numpy(), theirs)


def test_harm_grows_with_severity(digits):
    images = digits[0]
    for kind in ("gaussian_noise", "defocus_blur", "contrast"):
        change = [
            float((corrupted(images, kind, s).float() - images.float()).square().mean())
            for s in (1, 3, 5)
        ]
        assert change == sorted(change)
        assert change[0] > 0


def test_enlarging_alone_changes_nothing(digits, monkeypatch):
    import imagecorruptions

    monkeypatch.setattr(imagecorruptions, "corrupt", lambda image, severity, kind, **_: image)
    torch.testing.assert_close(corrupted(digits[0], "fog", 1), digits[0], rtol=0, atol=0)


def test_images_are_made_once(digits, tmp_path, monkeypatch):
    first = corrupted(digits[0], "fog", 1, cache=tmp_path)
    monkeypatch.setattr("opteq.data.corruption._corrupt", lambda *_: pytest.fail("made again"))
    torch.testing.assert_close(corrupted(digits[0], "fog", 1, cache=tmp_path), first)
    with pytest.raises(pytest.fail.Exception):
        corrupted(digits[0].flip(0) // 2, "fog", 1, cache=tmp_path)  # other images


def test_unknown_kinds_and_severities_are_refused(digits):
    with pytest.raises(UnknownOptionError, match="'fog'"):
        corrupted(digits[0], "fogg", 1)
    with pytest.raises(OptionError, match="1 to 5"):
        corrupted(digits[0], "fog", 6)


def test_figures_are_means_and_a_stopped_evaluation_goes_on(digits, tmp_path):
    images, labels = digits
    model = opteq.create_model("resnet_digits").eval()
    calls = []

    class StopError(Exception):
        pass

    def stop(n):
        calls.append(n)
        if n == 3:
            raise StopError

    kinds = ("contrast", "fog")
    with pytest.raises(StopError):
        under_corruption(
            model,
            images,
            labels,
            kinds=kinds,
            keep=FinishedFigures(tmp_path / "a", "k"),
            progress=stop,
        )
    finished = FinishedFigures(tmp_path / "a", "k")
    assert len(finished.figures) == 3
    finished.figures["contrast-1"] = 0.25  # what is known is not computed again
    found = under_corruption(model, images, labels, kinds=kinds, keep=finished)
    assert found.accuracy["contrast"][0] == 0.25
    assert found.mean_error == pytest.approx(1 - np.mean(list(found.accuracy.values())))
    assert len(FinishedFigures(tmp_path / "a", "k").figures) == 11
    assert FinishedFigures(tmp_path / "a", "other weights").figures == {}
    (tmp_path / "a").write_text("{")
    assert FinishedFigures(tmp_path / "a", "k").figures == {}


def test_error_relative_to_a_baseline():
    ours = Corrupted({"fog": [0.9, 0.8], "snow": [0.5, 0.5]}, 1.0, 10)
    base = Corrupted({"fog": [0.8, 0.6], "snow": [0.5, 0.0]}, 1.0, 10)
    assert mean_corruption_error(ours, base) == pytest.approx((0.3 / 0.6 + 1.0 / 1.5) / 2)
    assert mean_corruption_error(base, base) == pytest.approx(1.0)


def test_published_images_take_the_place_of_made_ones():
    """A model that always says 1 is right where all published images are of that class."""
    images = torch.zeros(8, 1, 8, 8, dtype=torch.uint8)
    labels = torch.zeros(8, dtype=torch.long)
    asked = []

    def published(kind, severity):
        asked.append((kind, severity))
        ones = torch.full((20,), float((severity < 3) == (kind == "fog")))
        return MemoryImages(torch.full((20, 1, 8, 8), severity, dtype=torch.uint8), ones)

    class Ones(Network):
        def compute(self, x):
            return Output(functional.one_hot(torch.ones(len(x), dtype=torch.long), 3).float(), [])

    found = under_corruption(Ones(), images, labels, kinds=("fog", "snow"), published=published)
    assert asked == [(kind, severity) for kind in ("fog", "snow") for severity in range(1, 6)]
    assert found.accuracy == {"fog": [1.0, 1, 0, 0, 0], "snow": [0.0, 0, 1, 1, 1]}
    assert found.clean == 0.0
