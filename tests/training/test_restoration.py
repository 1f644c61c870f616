"""Training to a target: a restorer from data to report, resumed, compared, certified, used."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import opteq
from opteq.cli.app import app
from opteq.data import load_data
from opteq.errors import OptionError, RecipeError
from opteq.models.restorer import Restorer
from opteq.training import budget
from opteq.training.loop import Trainer
from opteq.training.progress import epoch_line
from opteq.training.recipe_files import load_recipe
from opteq.training.tally import RestorationTally, psnr, ssim

CHANGES: dict[str, Any] = {
    "model": {"options": {"filters": 8, "side": 5, "through": [2], "compile": False}},
    "measure": {"crop": 24, "margin": 2, "watch": 2},
    "train": {"epochs": 4, "batch_size": 4, "evaluate_every": 1},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Squares and discs: flat but for their edges."""
    folder = tmp_path_factory.mktemp("data") / "bsd"
    generator = torch.Generator().manual_seed(0)
    for part, count, size in (("train400", 24, (40, 40)), ("test68", 3, (32, 48))):
        (folder / part).mkdir(parents=True)
        for i in range(count):
            image = torch.full(size, 0.4)
            for _ in range(4):
                top, left, side = (int(n) for n in torch.randint(2, 28, (3,), generator=generator))
                grey = float(torch.rand((), generator=generator))
                image[top : top + side, left : left + side] = grey
            Image.fromarray((image * 255).byte().numpy()).save(folder / part / f"{i}.png")
    return folder.parent


@pytest.fixture(scope="module")
def run(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return opteq.train("denoise_bsd", run_dir=folder, data_dir=home, quiet=True, **CHANGES)


def test_images_come_back_better_and_the_run_says_so(run):
    first, last = run.records[0]["test"], run.records[-1]["test"]
    assert last["psnr"] > first["psnr"]
    assert last["psnr"] > last["noisy_psnr"] + 4
    assert (last["images"], last["of_images"]) == (2, 3)
    assert last["unconverged"] == 0
    assert f"PSNR {last['psnr']:.2f} dB on 2 of 3 images, loss" in str(run)
    assert f"test (2 of 3) loss {last['loss']:.3g} PSNR" in epoch_line(run.records[-1], 4)
    text = run.folder.report.read_text()
    assert "test PSNR, 2 of 3 images" in text
    assert "restored," in text
    assert "The potential psi and its slope" in text
    assert "<img" not in text
    assert "src=" not in text


def test_the_loaded_model_restores_as_the_trained_one(run, home):
    model = run.model
    assert isinstance(model, Restorer)
    found = opteq.evaluate(run, data_dir=home)
    assert found.figures["images"] == 3
    assert "noise 25 of 255" in found.protocol
    truth = torch.full((1, 1, 24, 26), 0.5)
    y = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    restored = opteq.restore(run, y, noise=0.1).image
    assert float(psnr(restored, truth)) > float(psnr(y, truth)) + 4


@pytest.mark.parametrize("error", ["squared", "absolute", "psnr"])
def test_every_error_can_be_minimised(error, home, tmp_path):
    changes = {**CHANGES, "train": {"steps": 3, "epochs": 4, "loss": {"error": error}}}
    found = opteq.train("denoise_bsd", run_dir=tmp_path / "r", data_dir=home, quiet=True, **changes)
    assert found.finished


def test_comparisons_are_by_psnr(home, tmp_path):
    small = [
        load_recipe(name, changes={**CHANGES, "train": {**CHANGES["train"], "steps": 3}})
        for name in ("denoise_bsd", "denoise_bsd_convex")
    ]
    found = opteq.compare(small, seeds=1, output=tmp_path / "c", data_dir=home)
    assert "PSNR dB" in str(found)
    assert "2 of 3 test images" in str(found)
    assert ", 1 seed;" in str(found)


def test_minutes_count_the_images_that_are_watched(home, monkeypatch):
    """A test takes a second per image here, and training none."""
    now = [0.0]

    def tested(_, images):
        now[0] += len(images)

    monkeypatch.setattr(Trainer, "evaluate", tested)
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: now[0]))
    recipe = load_recipe("denoise_bsd", changes=CHANGES)
    assert budget._cost(recipe, load_data(recipe.data, home)) == (0, recipe.measure.watch)


def test_what_has_no_use_for_restoration_is_refused(home, tmp_path):
    useless: list[dict[str, Any]] = [
        {"augment": {"flip": True}},
        {"train": {"loss": {"margin": 1.0}}},
    ]
    for changes in useless:
        with pytest.raises(RecipeError, match="no use"):
            opteq.train("denoise_bsd_tiny", run_dir=tmp_path / "x", data_dir=home, **changes)
    assert not (tmp_path / "x").exists()
    with pytest.raises(RecipeError, match="is for restoration"):
        opteq.train("denoise_bsd_tiny", run_dir=tmp_path / "x", data={"name": "digits"})


def test_at_the_command_line(run, home, tmp_path):
    photo = tmp_path / "photo.png"
    Image.effect_noise((30, 24), 40).save(photo)
    call = CliRunner().invoke
    output = tmp_path / "out"
    found = call(app, ["restore", str(run.path), str(photo), "--output", str(output)])
    assert found.exit_code == 0, found.output
    assert "steps" in found.output
    with Image.open(output / "photo.png") as image:
        assert image.size == (30, 24)
    with pytest.raises(OptionError, match="exists already"):
        call(
            app,
            ["restore", str(run.path), str(photo), "--output", str(output)],
            catch_exceptions=False,
        )
    with pytest.raises(OptionError, match="opteq restore"):
        call(app, ["predict", str(run.path), str(photo)], catch_exceptions=False)
    tested = call(app, ["evaluate", str(run.path), "--data-dir", str(home), "--noise", "10"])
    assert tested.exit_code == 0, tested.output
    assert "noise 10 of 255" in tested.output
    certified = call(app, ["certify", str(run.path), "--data-dir", str(home)])
    assert certified.exit_code == 0, certified.output
    assert "equilibrium exists and is unique" in certified.output


def test_sums_add_up_over_processes():
    a = RestorationTally(psnr=30.0, ssim=1.5, noisy=20.0, loss=0.1, images=2)
    b = RestorationTally(psnr=10.0, ssim=0.3, noisy=5.0, loss=0.2, images=1)
    both = RestorationTally.from_numbers(a.numbers() + b.numbers(), a.failures)
    figures = both.figures()
    assert figures["psnr"] == pytest.approx(40 / 3)
    assert figures["noisy_psnr"] == pytest.approx(25 / 3)
    assert figures["loss"] == pytest.approx(0.1)
    assert figures["images"] == 3


@pytest.mark.parametrize("size", [(40, 52), (11, 30)])
def test_structural_similarity_is_kornias(size):
    from kornia.metrics import ssim as theirs

    torch.manual_seed(0)
    x = torch.rand(3, 1, *size, dtype=torch.float64)
    y = (x + 0.2 * torch.randn_like(x)).clamp(0, 1)
    expected = theirs(y, x, 11, padding="valid").flatten(1).mean(1)
    torch.testing.assert_close(ssim(y, x), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(ssim(x, x), torch.ones(3, dtype=torch.float64))
    assert bool(ssim(x[..., :6, :4], x[..., :6, :4]).isfinite().all())  # smaller than the window
