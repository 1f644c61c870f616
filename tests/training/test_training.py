"""Training: what is learnt, that it repeats, and that it can be interrupted anywhere."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from PIL import Image

import opteq
from narrow import a, classifier, known, tensor
from opteq.data import load_data
from opteq.data.batches import training_batches
from opteq.data.dataset import FileImages, MemoryImages
from opteq.data.folders import load_image_folder
from opteq.errors import DataError, DataWarning, RecipeError, RunError
from opteq.evaluation.calibration import calibration_figures, detection_auroc
from opteq.models.bodies import Parallel
from opteq.models.network import Classifier
from opteq.operators import WeightedOperator
from opteq.report.run_page import write_report
from opteq.theory import certificate
from opteq.training.checkpoint import load_checkpoint, save_checkpoint
from opteq.training.distributed import Agreement, load_together
from opteq.training.folder import RunFolder, latest_run, locked, make_run_folder
from opteq.training.loop import Trainer
from opteq.training.progress import Progress
from opteq.training.recipe_files import load_recipe
from opteq.training.saving import Saver
from opteq.training.session import Machines, train

ROOT = Path(__file__).parents[2]
SMALL = ("data.limit_train=128", "data.limit_test=64", "train.batch_size=32", "train.epochs=2")
ONE_EPOCH = ("train.epochs=1", "train.schedule.warmup_epochs=0")


def small(*changes, recipe="geq_digits"):
    return load_recipe(recipe, [*SMALL, *changes])


def run(tmp_path, *changes, recipe="geq_digits", name="run"):
    folder, outcome = train(small(*changes, recipe=recipe), tmp_path / name)
    return folder, outcome


def equal_states(one, other):
    a, b = (load_checkpoint(folder.last)[0] for folder in (one, other))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


VARIANTS = {
    "plain": (),
    "averaged, sgd": (
        "train.ema=0.9",
        "train.optimizer.name=sgd",
        "train.optimizer.nesterov=true",
        "train.clip=1.0",
    ),
    "adversarial": ("train.adversarial.steps=2",),
    "all terms of the loss": (
        "train.loss.label_smoothing=0.1",
        "augment.rand_augment=1",
        "train.loss.jacobian=0.1",
        "train.loss.regularizer=squared_norm",
    ),
    "tolerance, validated": (
        "train.solve.tolerance=1e-1",
        "train.solve.final_tolerance=1e-3",
        "data.validation=0.25",
    ),
}


class StopAfter(Progress):
    """Presses Ctrl-C after some steps."""

    def __init__(self, steps):
        self.left = steps

    def press(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def stop_after(monkeypatch):
    def arrange(steps):
        counter = StopAfter(steps)
        original = Trainer.train_step

        def counted(self, *arguments):
            original(self, *arguments)
            counter.press()

        monkeypatch.setattr(Trainer, "train_step", counted)

    return arrange


@pytest.mark.parametrize("name", VARIANTS)
def test_interrupted_and_resumed_is_bitwise_the_same(name, tmp_path, stop_after, monkeypatch):
    changes = VARIANTS[name]
    whole, outcome = run(tmp_path, *changes, name="whole")
    assert outcome.finished
    stop_after(2)
    parts, outcome = run(tmp_path, *changes, name="parts")
    assert not outcome.finished
    assert load_checkpoint(parts.last)[1]["step"] == 2
    stop_after(3)
    _, outcome = train(parts.recipe, parts.path, resume=True)
    assert not outcome.finished
    assert load_checkpoint(parts.last)[1]["step"] == 5
    monkeypatch.undo()
    _, outcome = train(parts.recipe, parts.path, resume=True)
    assert outcome.finished
    assert equal_states(whole, parts)
    for one, other in zip(whole.metrics(), parts.metrics(), strict=True):
        assert {k: v for k, v in one.items() if k not in ("seconds", "images_per_second")} == {
            k: v for k, v in other.items() if k not in ("seconds", "images_per_second")
        }
    best = [load_checkpoint(folder.best)[0] for folder in (whole, parts)]
    assert all(torch.equal(best[0][k], best[1][k]) for k in best[0])


def test_leftovers_of_a_killed_save_are_removed(tmp_path):
    folder, _ = run(tmp_path, *ONE_EPOCH)
    leftover, mine = folder.path / ".last.safetensors.x1y2", folder.path / ".notes"
    leftover.write_bytes(b"half")
    mine.write_text("mine")
    train(folder.recipe, folder.path, resume=True)
    assert not leftover.exists()
    assert mine.exists()


def test_the_same_seed_repeats_and_another_does_not(tmp_path):
    folders = [
        run(tmp_path, f"seed={seed}", "augment.flip=true", name=str(i))[0]
        for i, seed in enumerate((0, 0, 1))
    ]
    assert equal_states(folders[0], folders[1])
    assert not equal_states(folders[0], folders[2])


def test_terms_of_the_loss_change_what_is_learnt(tmp_path):
    terms = {
        "plain": (),
        "adversarial": ("train.adversarial.steps=2",),
        "smoothed": ("train.loss.label_smoothing=0.1",),
        "jacobian": ("train.loss.jacobian=0.1",),
        "regularized": ("train.loss.regularizer=squared_norm",),
    }
    folders = {name: run(tmp_path, *own, name=name)[0] for name, own in terms.items()}
    for name, folder in folders.items():
        assert name == "plain" or not equal_states(folders["plain"], folder)


def test_jacobian_term_is_the_mean_square_of_the_jacobian():
    from opteq.training.objective import jacobian_size

    torch.manual_seed(0)
    body = a(Parallel, classifier("geq_digits").double().eval().body)
    layer = body.equilibria()[1]
    u = body.injections[1](torch.rand(1, 32, 4, 4, dtype=torch.float64))
    solution = layer.solve(u.detach())
    state, bound = tensor(solution.state), known(solution.map)
    dense = torch.autograd.functional.jacobian(
        lambda z: tensor(bound(z.view_as(state))).flatten(), state.detach().flatten()
    )
    exact = float(dense.square().sum()) / state.numel()
    estimates = torch.stack([jacobian_size(solution).detach() for _ in range(300)])
    error = 4 * float(estimates.std()) / 300**0.5
    assert float(estimates.mean()) == pytest.approx(exact, abs=error)


def test_attacks_stay_within_their_box_and_raise_the_loss():
    from opteq.attacks import Attack, projected_gradient
    from opteq.training.objective import cross_entropy

    torch.manual_seed(0)
    model = opteq.create_model("geq_digits")
    x, y = torch.rand(16, 1, 8, 8), torch.arange(16) % 10
    moved = projected_gradient(model, x, y, Attack(0.1, steps=5))
    assert float((moved - x).abs().max()) <= 0.1 + 1e-6
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
    assert model.training
    with torch.no_grad():
        model.eval()
        assert float(cross_entropy(model(moved), y)) > float(cross_entropy(model(x), y))


def test_best_is_chosen_on_images_kept_back(tmp_path):
    folder, _ = run(tmp_path, "data.validation=0.25", "train.epochs=4")
    records = folder.metrics()
    scores = [record["validation"]["accuracy"] for record in records]
    facts = load_checkpoint(folder.best)[1]
    assert facts["records"][-1]["epoch"] == scores.index(max(scores)) + 1
    assert records[0]["validation"]["images"] == 32
    assert f"geq_digits, best checkpoint of {folder.path}" in opteq.evaluate(folder.path).protocol


def test_a_trained_model_is_loaded_ready(tmp_path):
    folder, outcome = run(tmp_path)
    model = opteq.load(folder.path)
    assert not model.training
    assert model.class_names == tuple("0123456789")
    x = torch.rand(4, 1, 8, 8)
    outcome.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(x), outcome.model(x), rtol=1e-3, atol=1e-3)
    assert a(Classifier, model).body.equilibria()[0].solver.tol == 1e-4


def test_runs_are_never_overwritten(tmp_path):
    folder, _ = run(tmp_path)
    before = folder.last.read_bytes()
    with pytest.raises(RunError, match="exists already"):
        run(tmp_path)
    assert folder.last.read_bytes() == before
    stranger = tmp_path / "mine"
    stranger.mkdir()
    (stranger / "thesis.txt").write_text("precious")
    with pytest.raises(RunError, match="not the folder of a run"):
        train(small(), stranger, force=True)
    assert (stranger / "thesis.txt").read_text() == "precious"
    train(small("seed=5"), folder.path, force=True)
    assert folder.recipe.seed == 5


def test_nothing_is_written_when_the_model_does_not_fit(tmp_path):
    with pytest.raises(RecipeError, match="does not take the images"):
        train(small("model.options.sides=[16, 8]"), tmp_path / "x")
    with pytest.raises(RecipeError, match="model"):
        train(small("model.options.middle=[8]"), tmp_path / "x")
    with pytest.raises(RecipeError, match="segmentation"):
        train(small("model.name=opteq_segment_tiny"), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_runs_are_found_by_name(tmp_path):
    first, _ = run(tmp_path, name="a")
    assert make_run_folder(tmp_path / "a", numbered=True) == tmp_path / "a-2"
    assert make_run_folder(tmp_path / "a", numbered=True) == tmp_path / "a-3"
    run(tmp_path, name="a_beyond")  # another recipe, and newer
    assert latest_run(tmp_path, "a") == first.path
    with pytest.raises(RunError, match="no run of b"):
        latest_run(tmp_path, "b")


def test_a_run_of_another_version_is_refused(tmp_path, monkeypatch):
    folder, _ = run(tmp_path)
    tensors, facts = load_checkpoint(folder.last)
    monkeypatch.setattr("opteq.training.checkpoint.FORMAT", 2)
    with pytest.raises(RunError, match="version"):
        opteq.load(folder.path, "last")
    monkeypatch.undo()
    del tensors["model/head.bias"]
    facts.pop("format")
    save_checkpoint(folder.last, tensors, facts)
    with pytest.raises(RunError, match="does not fit"):
        opteq.load(folder.path, "last")


def test_models_that_solve_nothing_train_too(tmp_path):
    folder, outcome = run(tmp_path, recipe="resnet_digits")
    assert outcome.finished
    assert "steps" not in folder.metrics()[-1]["test"]


def test_segmentation_trains(tmp_path):
    changes = (
        "model.name=opteq_segment_tiny",
        "model.options.gradient=one_step",
        "data.name=fake",
        "data.shape=[3,24,32]",
        "data.classes=3",
        "data.segmentation=true",
        "augment.crop=2",
    )
    folder, outcome = run(tmp_path, *changes)
    assert outcome.finished
    assert 0 <= folder.metrics()[-1]["test"]["mean_iou"] <= 1
    write_report(folder, load_data(folder.recipe.data))
    page = folder.report.read_text()
    assert "Predicted masks" in page
    assert page.count("display: inline-block") == 3


def test_two_processes_train_in_mixed_precision(tmp_path):
    command = [sys.executable, "-m", "opteq.cli.app", "train", "geq_digits", "--quiet"]
    command += ["--accelerator", "cpu", "--devices", "2", "--run-dir", str(tmp_path / "run")]
    for setting in (*SMALL, *ONE_EPOCH, "train.precision=bf16-mixed"):
        command += ["--set", setting]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1  # one process speaks for all
    assert "FutureWarning" not in done.stderr
    (record,) = RunFolder(tmp_path / "run").metrics()
    assert math.isfinite(record["train"]["loss"])
    assert record["train"]["unconverged"] <= 0.05


def test_checkpoints_are_made_by_the_clock(tmp_path, monkeypatch):
    made = []
    save = Saver.save

    def counted(self, state, **kind):
        made.append(state.step)
        save(self, state, **kind)

    monkeypatch.setattr(Saver, "save", counted)
    monkeypatch.setattr("opteq.training.loop.Clock.rings", lambda self: True)
    run(tmp_path, *ONE_EPOCH)
    assert {1, 2, 3} <= set(made)  # four steps; the last is that of the epoch


def _load_together(fabric, folders, queue):
    """Only the first process may look into folders."""
    if not fabric.is_global_zero:
        os.walk = None  # pyright: ignore[reportAttributeAccessIssue]
    first, second = fabric.global_rank == 0, fabric.global_rank == 1
    found: list[object] = [Agreement(fabric).any(first, second, False)]
    for folder in folders:
        try:
            data = load_together(lambda folder=folder: load_image_folder(folder, size=8), fabric)
            found.append([str(path) for path in a(FileImages, data.train).paths])
        except DataError as error:
            found.append(str(error))
    queue.put(found)
    torch.distributed.destroy_process_group()


def test_processes_agree_and_folders_are_listed_by_one_for_all(tmp_path):
    for name in ("cat/1.png", "cat/2.png", "dog/1.png", "dog/3.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn")
    folders = [tmp_path / "nowhere", tmp_path]
    fabric.launch(_load_together, folders, queue)  # pyright: ignore[reportArgumentType]
    (agreed, refused, paths), other = queue.get(), queue.get()
    assert other == [agreed, refused, paths]
    assert agreed == [True, True, False]
    assert "There is no folder" in refused
    assert [Path(path).parent.name for path in paths] == ["cat", "dog"]


def test_two_processes_learn_what_one_learns(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = ROOT / "benchmarks" / "reliability" / "processes.py"
    done = subprocess.run(
        [sys.executable, script, "geq_digits"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "largest difference" in done.stdout


def test_killed_runs_lose_nothing():
    """The short form of the script; the long one is for those who have ten minutes."""
    script = ROOT / "benchmarks" / "reliability" / "kill.py"
    done = subprocess.run(
        [sys.executable, script, "--kills", "1", "--epochs", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kills" in done.stdout
    assert "0 unreadable checkpoints, 0 losses, bitwise equal" in done.stdout


def test_devices_that_are_not_there_are_refused():
    for accelerator in ("cuda", "gpu"):
        with pytest.raises(RunError, match=r"cannot be used: [^!]*[^!.]\. Check --accelerator"):
            Machines(accelerator=accelerator, devices=4).fabric(small())


def test_folders_that_are_no_runs_are_told(tmp_path):
    with pytest.raises(RunError, match="not the folder of a run"):
        _ = RunFolder(tmp_path).recipe
    with pytest.raises(RunError, match="does not exist"):
        opteq.load(tmp_path)


def test_killed_between_the_two_files_of_an_epoch_the_best_weights_are_kept(tmp_path, monkeypatch):
    """Wherever the run dies, `best` has the weights of the best epoch that `last` knows of, or of
    the one that is trained again. The second epoch of three is the best."""
    changes = ("data.validation=0.25", "train.epochs=3")
    evaluate = Trainer.evaluate

    def judged(self, images):
        found = evaluate(self, images)
        if images is self.choice_set:
            accuracy = (0.2, 0.9, 0.5)[len(self.state.records)]
            figures = found.figures() | {"accuracy": accuracy}
            return SimpleNamespace(figures=lambda: figures)
        return found

    monkeypatch.setattr(Trainer, "evaluate", judged)
    whole, _ = run(tmp_path, *changes, name="whole")
    best = load_checkpoint(whole.best)
    import opteq.training.saving as saving

    killed = 0
    for number in range(1, 7):
        count = 0

        def dying(path, tensors, facts, number=number):
            nonlocal count
            count += 1
            if count == number:
                raise KeyboardInterrupt
            save_checkpoint(path, tensors, facts)

        monkeypatch.setattr(saving, "save_checkpoint", dying)
        folder = RunFolder(tmp_path / f"killed-{number}")
        try:
            train(small(*changes), folder.path)
        except KeyboardInterrupt:
            killed += 1
        monkeypatch.setattr(saving, "save_checkpoint", save_checkpoint)
        train(small(*changes), folder.path, resume=True)
        assert equal_states(whole, folder)
        found = load_checkpoint(folder.best)
        assert found[1]["step"] == best[1]["step"]
        assert all(torch.equal(found[0][k], best[0][k]) for k in best[0])
    assert killed >= 4


def test_a_damaged_best_does_not_block_a_resume(tmp_path):
    folder, _ = run(tmp_path, "data.validation=0.25", "train.epochs=2")
    recipe = folder.recipe
    folder.best.write_bytes(b"damaged")
    scores = [r["validation"]["accuracy"] for r in folder.metrics()]
    if scores[-1] < max(scores):
        with pytest.warns(DataWarning, match="chosen anew"):
            train(recipe, folder.path, resume=True)
    else:
        train(recipe, folder.path, resume=True)
    assert load_checkpoint(folder.best)[1]["step"] == load_checkpoint(folder.last)[1]["step"]


def test_of_processes_that_want_one_name_each_gets_its_own(tmp_path):
    """Two at once; and the folder of a running run is locked."""
    code = (
        "import sys; from pathlib import Path; from opteq.training.folder import make_run_folder\n"
        "sys.stdin.readline(); print(make_run_folder(Path(sys.argv[1]), numbered=True).name)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "a")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        stdin = known(process.stdin)
        stdin.write("go\n")
        stdin.flush()
    names = [process.communicate()[0].strip() for process in processes]
    assert sorted(names) == ["a", "a-2"]
    folder, _ = run(tmp_path)
    with locked(folder.path):
        code = (
            "import sys; from pathlib import Path; from opteq.training.session import train\n"
            "from opteq.training.recipe_files import load_recipe\n"
            "from opteq.errors import RunError\n"
            "recipe = load_recipe('geq_digits', ['data.limit_train=32'])\n"
            "for options in ({'resume': True}, {'force': True}):\n"
            "    try: train(recipe, Path(sys.argv[1]), **options)\n"
            "    except RunError as error: print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder.path)], capture_output=True, text=True
        )
        assert done.stdout.count("in use by another process") == 2, done.stderr
    assert opteq.load(folder.path)


def test_data_of_the_same_name_but_other_images_is_told_apart(tmp_path):
    folder, _ = run(tmp_path, "train.steps=1")
    other = load_data(folder.recipe.data)
    a(MemoryImages, other.train).images.bitwise_xor_(1)
    with pytest.raises(RunError, match="images other than those"):
        train(folder.recipe, folder.path, resume=True, data=other)


def photographs(folder, *, broken=()):
    """A folder of forty images in two classes, some of which are none."""
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", 20), ("val", 4)):
        for label in ("cat", "dog"):
            home = folder / part / label
            home.mkdir(parents=True)
            for i in range(count):
                pixels = torch.randint(256, (8, 8, 3), generator=generator, dtype=torch.uint8)
                Image.fromarray(pixels.numpy()).save(home / f"{i:02}.png")
    paths = sorted((folder / "train").rglob("*.png"))
    for index in broken:
        paths[index].write_text("no image")
    return folder


def test_resumed_over_an_unreadable_batch_is_bitwise_the_same(tmp_path, stop_after, monkeypatch):
    """A step is a step, whether its images could be read or not."""
    order = training_batches(40, 8, seed=0, epoch=0)
    data = photographs(tmp_path / "data", broken=order[1].tolist())
    changes = (
        "data.name=folder",
        f"data.path={data}",
        "data.image_size=8",
        "data.undecodable=skip",
        "data.limit_train=null",
        "data.limit_test=null",
        "train.batch_size=8",
        "model.name=geq_digits",
    )
    whole, outcome = run(tmp_path, *changes, name="whole")
    assert outcome.skipped == 8
    assert load_checkpoint(whole.last)[1]["step"] == 10
    stop_after(3)
    parts, outcome = run(tmp_path, *changes, name="parts")
    assert not outcome.finished
    monkeypatch.undo()
    train(parts.recipe, parts.path, resume=True)
    assert equal_states(whole, parts)


def test_files_that_cannot_be_decoded_are_left_out_wherever_they_sort(tmp_path, capsys):
    data = photographs(tmp_path / "data", broken=[0])
    (data / "val" / "cat" / "00.png").write_text("no image")
    changes: dict[str, Any] = {
        "data": {"name": "folder", "path": str(data), "image_size": 8},
        "train": {"epochs": 1, "batch_size": 8, "schedule": {"warmup_epochs": 0}},
    }
    with pytest.raises(DataError, match=r"cat/00\.png is not an image.* data\.undecodable=skip"):
        opteq.train("geq_digits", run_dir=tmp_path / "run", quiet=True, **changes)
    assert not (tmp_path / "run").exists()
    changes["data"]["undecodable"] = "skip"
    found = opteq.train("geq_digits", run_dir=tmp_path / "run", **changes)
    assert (found.skipped, len(found.folder.skipped)) == (2, 2)
    page = found.folder.report.read_text()
    for words in ("2 files were left out", "up to 40 images to train", "train/cat/00.png"):
        assert words in page
    assert "up to 40 images to train" in capsys.readouterr().out
    robust = opteq.certify(found, radii=(0.1,), steps=1, limit=8).robust
    assert known(robust).images == 7
    now = data.rename(tmp_path / "moved")
    longer = opteq.train(resume=True, run_dir=found.path, path=now, epochs=2, quiet=True)
    assert longer.skipped == 2
    for path in now.rename(data).rglob("*.png"):
        path.write_text("no image")
    with pytest.raises(DataError, match=r"None of 40 images can be used\. The first: .*00\.png"):
        opteq.train("geq_digits", run_dir=tmp_path / "none", quiet=True, **changes)


def test_ema_added_before_a_resume_is_refused(tmp_path):
    folder, _ = run(tmp_path, "train.steps=1")
    changed = small("train.steps=1", "train.ema=0.9")
    with pytest.raises(RunError, match=r"without train\.ema"):
        train(changed, folder.path, resume=True)


@pytest.mark.parametrize("name", ["geq_digits", "opteq_digits", "mopteq_digits"])
def test_mixed_precision_does_something_and_learns(name, tmp_path):
    """Stem and head in bfloat16, norms, statistics and solves in full precision."""
    changes = (*ONE_EPOCH, "data.limit_train=256")
    losses = []
    for precision in ("32-true", "bf16-mixed"):
        _, outcome = run(
            tmp_path, *changes, f"train.precision={precision}", recipe=name, name=precision
        )
        record = outcome.records[-1]
        losses.append(record["train"]["loss"])
        assert record["train"]["unconverged"] <= 0.05
        operators = [m for m in outcome.model.modules() if isinstance(m, WeightedOperator)]
        assert all(m.norm() <= m.norm_bound for m in operators if m.norm_bound is not None)
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_weights_that_diverged_are_told(tmp_path):
    """Everything that can be said of a run that became NaN is said, and nothing is a traceback."""
    folder, outcome = run(tmp_path, "train.optimizer.learning_rate=1e30", *ONE_EPOCH)
    test = outcome.records[-1]["test"]
    assert math.isnan(test["loss"])
    assert math.isnan(test["residual"])
    assert test["unconverged"] == 1.0
    assert test["accuracy"] == 0.0  # what is not a number predicts nothing
    with pytest.warns(DataWarning, match="diverged"):
        model = opteq.load(folder.path)
    found = certificate(model)
    assert found.lipschitz == math.inf
    assert not found.unique
    logits = torch.full((4, 10), math.nan)
    assert math.isnan(detection_auroc(logits, torch.randn(4, 10)))
    assert math.isnan(calibration_figures(logits, torch.zeros(4).long())["calibration_error"])


def test_a_checkpoint_of_the_old_spelling_goes_on_bit_for_bit(tmp_path, monkeypatch):
    """Runs say optimizer now; what they once said is still read."""
    steady = "train.schedule={name: constant}"  # so that one epoch is the first of two
    whole, _ = run(tmp_path, steady, "train.epochs=2", name="whole")
    folder, _ = run(tmp_path, steady, "train.epochs=1", name="old")
    tensors, facts = load_checkpoint(folder.last)
    facts["optimiser"] = facts.pop("optimizer")
    old = {k.replace("optimizer/", "optimiser/"): v for k, v in tensors.items()}
    assert len(set(old) - set(tensors)) > 5
    del facts["format"]
    save_checkpoint(folder.last, old, {**facts, "finished": False})
    recipe = folder.path / "recipe.yaml"
    text = recipe.read_text().replace("optimizer:", "optimiser:").replace("epochs: 1", "epochs: 2")
    recipe.write_text(text)
    monkeypatch.setattr("opteq.training.recipe_files._TOLD", {("train", "optimiser")})
    train(folder.recipe, folder.path, resume=True)
    assert equal_states(whole, folder)
