"""Measurements of clean images, and photographs to learn from."""

import pytest
import torch
from PIL import Image

from narrow import a
from opteq.data.catalogue import load_data
from opteq.data.dataset import MemoryImages
from opteq.data.measuring import LEVEL, measure_for_test, measure_for_training
from opteq.data.settings import DataSettings, MeasureSettings
from opteq.errors import DataError
from opteq.operators import AveragePool, Identity


def test_tests_leave_the_truth_as_it_is_and_do_not_depend_on_the_batch():
    x = torch.rand(3, 1, 20, 22)
    before = x.clone()
    found = measure_for_test(x, Identity(), 25 * LEVEL)
    assert torch.equal(x, before)
    assert found.truth is x
    noise = (found.y - x).flatten(1)
    assert noise.std(1).tolist() == pytest.approx([25 * LEVEL] * 3, rel=0.1)
    alone = measure_for_test(x[1:2], Identity(), 25 * LEVEL)
    assert torch.equal(alone.y, found.y[1:2])
    assert not torch.equal(noise[0], noise[1])


def test_training_sees_parts_of_images_with_noise_of_every_level():
    torch.manual_seed(0)
    x = torch.arange(40 * 50).view(1, 1, 40, 50).float().expand(200, -1, -1, -1) / 2000
    found = measure_for_training(x, AveragePool(2), MeasureSettings(noise=(5, 20), crop=16))
    assert found.truth.shape == (200, 1, 16, 16)
    assert found.y.shape == (200, 1, 8, 8)
    assert float(found.noise.min()) >= 5 * LEVEL
    assert float(found.noise.max()) <= 20 * LEVEL
    assert float(found.noise.std()) > 2 * LEVEL
    miss = found.y - AveragePool(2)(found.truth)
    ratio = miss.flatten(1).std(1) / found.noise
    assert float(ratio.mean()) == pytest.approx(1, rel=0.05)
    # Flipped and turned: an image that rises slowly to the right and fast downwards.
    rises = found.truth[:, 0].diff(dim=2).mean((1, 2))
    assert {round(float(r), 5) for r in rises} == {0.0005, -0.0005, 0.025}


@pytest.mark.parametrize("bad", [{"noise": (9, 3)}, {"crop": 16, "margin": 8}, {"noise": (0, 300)}])
def test_measurements_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError, match=r"noise|margin"):
        MeasureSettings(**bad)


def save(path, height, width):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((width, height), 50).save(path)


def test_bsd_is_read_with_upright_photographs_turned(tmp_path):
    with pytest.raises(DataError, match="DnCNN"):
        load_data("bsd", tmp_path)
    for i in range(3):
        save(tmp_path / "bsd" / "train400" / f"{i}.png", 20, 20)
    save(tmp_path / "bsd" / "test68" / "a.png", 16, 24)
    save(tmp_path / "bsd" / "test68" / "b.png", 24, 16)
    data = load_data("bsd", tmp_path)
    assert data.task == "restoration"
    assert a(MemoryImages, data.test).images.shape == (2, 1, 16, 24)
    assert len(load_data("bsd", tmp_path / "bsd").train) == 3
    save(tmp_path / "bsd" / "test68" / "c.png", 30, 30)
    with pytest.raises(DataError, match="different sizes"):
        load_data("bsd", tmp_path)


def test_photographs_of_a_folder_are_split_and_cut(tmp_path):
    for i in range(11):
        save(tmp_path / "deep" / f"{i:02}.jpg", 40 + i, 50)
    data = load_data(DataSettings(name="photos", image_size=32), tmp_path)
    assert (len(data.train), len(data.test)) == (9, 2)
    image, _ = data.train.read(0)
    assert image.shape == (1, 32, 32)
    assert image.dtype == torch.uint8
    large = load_data(DataSettings(name="photos", image_size=45), tmp_path)
    with pytest.raises(DataError, match="image_size"):
        large.train.read(0)
    with pytest.raises(DataError, match=r"There is no folder .*--path"):
        load_data("photos", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has 0 images\. There must be at least two"):
        load_data("photos", tmp_path / "empty")
