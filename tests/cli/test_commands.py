"""The commands, as a user types them."""

import html
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from opteq import __version__
from opteq.attacks import Attack
from opteq.cli.app import app, main
from opteq.cli.console import progress_in_words
from opteq.models.registry import builder, list_models
from opteq.papers.catalogue import TITLES
from opteq.training.recipe_files import load_recipe
from opteq.workflow.explore import gather

# A few images cannot show ten classes.
pytestmark = pytest.mark.filterwarnings("ignore::opteq.errors.DataWarning")
SMALL = [
    *("--set", "data.limit_train=128", "--set", "data.limit_test=64"),
    *("--set", "train.epochs=1", "--set", "train.schedule.warmup_epochs=0"),
]


def opteq(*arguments, cwd=None, data=None):
    """In a process of its own: (exit code, output, complaints)."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    if data is not None:
        environment["OPTEQ_DATA"] = str(data)
    done = subprocess.run(
        [sys.executable, "-m", "opteq.cli.app", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def run_inside(*arguments):
    """In this process, where importing has been paid for."""
    return CliRunner().invoke(app, [str(a) for a in arguments])


def typed(monkeypatch, capsys, *arguments):
    """As a user types it, errors reported as they are, but in this process: (exit code, output,
    complaints)."""
    monkeypatch.setattr(sys, "argv", ["opteq", *map(str, arguments)])
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # put back afterwards
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code, *capsys.readouterr()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("my runs") / "run"
    code, output, complaint = opteq("train", "geq_digits", "--run-dir", folder, *SMALL)
    assert code == 0, complaint
    return folder, output


def test_training_writes_a_whole_run_folder(trained):
    folder, output = trained
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "recipe.yaml",
        "environment.json",
        "metrics.jsonl",
        "last.safetensors",
        "best.safetensors",
        "report.html",
    }
    assert "epoch   1/1" in output
    assert "test accuracy" in output
    assert str(folder / "report.html") in output
    assert json.loads((folder / "environment.json").read_text())["opteq"]


def test_the_report_is_self_contained_and_whole(trained):
    text = (trained[0] / "report.html").read_text()
    outside = re.findall(r"""(?:src|href)=["'](?!#)(?!data:)[^"']+|@import|url\((?!#)[^)]+""", text)
    assert outside == []
    for words in ("test accuracy", "Learning", "Inside the model", "Confusion", "How to repeat it"):
        assert words in text
    assert "<h1>geq_digits</h1>" in text
    typed = shlex.join(["opteq", "train", "geq_digits", "--run-dir", str(trained[0]), *SMALL])
    assert typed in html.unescape(text)
    assert text.count("<svg") >= 6
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL).lower()


def test_evaluation_repeats_the_test_of_the_training(trained):
    folder, _ = trained
    result = run_inside("evaluate", folder, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["test"]
    assert found["accuracy"] == last["accuracy"]
    assert found["loss"] == pytest.approx(last["loss"], rel=1e-5)
    confusion = np.array(found["confusion"])
    assert confusion.sum() == found["images"] == 64
    assert np.trace(confusion) / 64 == found["accuracy"]
    limited = json.loads(run_inside("evaluate", folder, "--json", "--limit", 10).stdout)
    assert limited["images"] == 10
    assert "10 of 64" in limited["protocol"]
    printed = run_inside("evaluate", folder).stdout
    assert "Confusion" in printed
    assert "steps" in printed


def test_own_images_are_classified(trained, tmp_path, monkeypatch, capsys):
    good, bad = tmp_path / "digit.png", tmp_path / "not.png"
    Image.new("L", (60, 40), 200).save(good)
    bad.write_text("no image")
    result = run_inside("predict", trained[0], good, "--top", 2)
    assert result.exit_code == 0
    assert re.search(r"digit\.png: \d [\d.]+%, \d [\d.]+%", result.stdout)
    assert "certain" not in result.stdout  # nothing is proved of a free stem
    code, output, complaint = typed(monkeypatch, capsys, "predict", trained[0], bad, good)
    assert code == 2
    assert "digit.png" in output
    assert complaint.count(str(bad)) == 1
    assert "not.png is not an image" in complaint
    assert "undecodable" not in complaint  # advice for those who train
    assert "Traceback" not in complaint


def test_lists_are_complete_and_fast():
    from opteq.models import list_models
    from opteq.training.summaries import list_recipes

    assert len(run_inside("list", "models").stdout.splitlines()) == len(list_models())
    assert len(run_inside("list", "recipes").stdout.splitlines()) == len(list_recipes())
    assert "cifar10" in run_inside("list", "data").stdout
    assert "geq_digits" in run_inside("list", "models", "geq*").stdout
    for arguments in (("--help",), ("list", "models"), ("list", "recipes"), ("train", "--help")):
        times = []
        for _ in range(2):
            begun = time.perf_counter()
            assert opteq(*arguments)[0] == 0
            times.append(time.perf_counter() - begun)
        # Half a second is the aim; tests share the machine with others.
        assert min(times) < 1.5, arguments


def test_listing_does_not_import_torch():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from opteq.cli.app import app\n"
        "for words in (['--help'], ['list', 'models'], ['list', 'recipes'], ['list', 'data']):\n"
        "    assert CliRunner().invoke(app, words).exit_code == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_doctor_finds_the_installation_in_order():
    result = run_inside("doctor")
    assert result.exit_code == 0
    assert "self-test" in result.stdout
    assert "good" in result.stdout


BAD = {
    "unknown recipe": (["train", "geq_digit"], "'geq_digits'"),
    "unknown key": (["train", "--set", "train.epoch=1"], "'epochs'"),
    "wrong type": (["train", "--set", "train.epochs=many"], "train.epochs"),
    "out of range": (["train", "--set", "train.epochs=-3"], "greater than"),
    "unknown model option": (["train", "--set", "model.options.gama=1"], "'gamma'"),
    "contradiction": (["train", "--resume", "--force"], "contradict"),
    "devices": (["train", "--devices", "two"], "not a number"),
    "nothing to resume": (["train", "--resume"], "no run of geq_digits"),
    "missing data": (
        ["train", "geq_cifar10_5m", "--set", "data.download=false"],
        "cifar-10-binary.tar.gz",
    ),
    "no run": (["evaluate", "nowhere"], "There is no run nowhere"),
    "unknown suite": (["evaluate", "nowhere", "--suite", "acuracy"], "'accuracy'"),
    "unknown experiment": (["reproduce", "geq-t11"], "'geq-t1'"),
    "no experiment": (["reproduce"], "--list"),
    "unknown scale": (["reproduce", "geq-t1", "--scale", "tny"], "'tiny'"),
    "unknown small data": (["reproduce", "geq-t1", "--data", "digit"], "'digits'"),
    "experiment with a wrong key": (
        ["reproduce", "geq-t5", "--set", "train.epoch=1"],
        "'epochs'",
    ),
    "unknown list": (["list", "modles"], "'models'"),
    "compared twice": (["compare", "geq_digits", "geq_digits"], "twice"),
    "missing recipe file": (["train", "none.yaml"], "cannot be read"),
    "a date that is none": (["train", "--set", "seed=2020-13-45"], "is not a value"),
    "a tag that lies": (["train", "--set", "seed=!!int abc"], "is not a value"),
    "a number of 5,000 digits": (["train", "--set", f"seed={'9' * 5000}"], "is not a value"),
    "3,000 brackets": (["train", "--set", f"seed={'[' * 3000}"], "is not a value"),
    "everything kept back": (["train", "--set", "data.validation=0.9999"], "on both sides"),
    "nothing kept back": (["train", "--set", "data.validation=1e-6"], "on both sides"),
    "classes that are not the data's": (
        ["train", "--set", "model.options.classes=3"],
        "the data has 10",
    ),
    "a name that leads outside": (["train", "--set", "name=../../evil"], "begins with"),
    "a name with a NUL": (["train", "--set", 'name="a\\0b"'], "begins with"),
    "a name of dots": (["train", "--set", "name=.."], "begins with"),
    "a model too large for any memory": (
        ["train", "--set", "model.options.channels=1000000"],
        "of weights",
    ),
    "channels that are no whole number": (
        ["train", "--set", "model.options.channels=1e9"],
        "model",
    ),
    "a folder with a NUL": (
        ["train", "--set", 'data={name: folder, path: "a\\0b"}'],
        "There is no folder",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_writes_nothing(name, tmp_path, monkeypatch, capsys):
    arguments, words = BAD[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPTEQ_DATA", str(tmp_path / "data"))
    code, output, complaint = typed(monkeypatch, capsys, *arguments)
    assert code == 2
    assert complaint.count("\n") == 1
    assert complaint.startswith("opteq: ")
    assert words in complaint
    assert "Traceback" not in output + complaint
    assert list(tmp_path.rglob("*")) == []


def test_bad_input_to_a_process_of_its_own(tmp_path):
    arguments, words = BAD["unknown suite"]
    code, output, complaint = opteq(*arguments, cwd=tmp_path)
    assert (code, output) == (2, "")
    assert complaint.startswith("opteq: ")
    assert words in complaint
    assert complaint.count("\n") == 1


def test_a_read_only_place_is_told(tmp_path, monkeypatch, capsys):
    if os.geteuid() == 0:
        place = Path("/proc/none")
    else:
        place = tmp_path / "locked"
        place.mkdir(mode=0o500)
    code, _, complaint = typed(monkeypatch, capsys, "train", "--run-dir", place / "run", *SMALL)
    assert code == 2
    assert "cannot be created" in complaint
    assert complaint.count("\n") == 1


ODD_PLACES = {
    "predictions into a file": (("predict", "RUN", "IMAGE", "--output", "FILE"), "is a file"),
    "explanations below a file": (
        ("predict", "RUN", "IMAGE", "--explain", "--output", "FILE/x"),
        "cannot be created",
    ),
    "an explanation below a file": (
        ("explain", "RUN", "IMAGE", "--output", "FILE/x.png"),
        "cannot be created",
    ),
    "an export below a file": (
        ("export", "RUN", "--steps", "2", "--output", "FILE/m.onnx"),
        "cannot be created",
    ),
    "no name at all": (("predict", "RUN", ""), "is empty"),
    "an image that is not there": (("explain", "RUN", "IMAGE.gone"), "cannot be read (No such"),
    "a run in a file": (("train", "--run-dir", "FILE"), "is a file"),
    "a name that is too long": (("train", "--run-dir", "x" * 300), "too long"),
    "a radius of nothing": (("certify", "RUN", "--radius", "0"), "above 0"),
    "tasks that differ": (
        ("compare", "geq_digits", "mazes", "--output", "NEW"),
        "cannot be compared",
    ),
}


@pytest.mark.parametrize("name", ODD_PLACES)
def test_odd_places_are_told_in_one_line(name, trained, tmp_path, monkeypatch, capsys):
    """Before the work is done, and with nothing left behind."""
    image, file = tmp_path / "image.png", tmp_path / "notes.txt"
    Image.effect_noise((8, 8), 64).save(image)
    file.write_text("mine")
    arguments, words = ODD_PLACES[name]
    places = {"RUN": trained[0], "IMAGE": image, "FILE": file, "NEW": tmp_path / "new"}
    filled = []
    for word in arguments:
        key = next((k for k in places if word.startswith(k)), None)
        filled.append(word if key is None else f"{places[key]}{word.removeprefix(key)}")
    monkeypatch.chdir(tmp_path)
    code, output, complaint = typed(monkeypatch, capsys, *filled)
    assert code == 2
    assert complaint.count("\n") == 1
    assert words in complaint
    assert "Traceback" not in output + complaint
    assert file.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"image.png", "notes.txt"}


def test_a_path_is_taken_literally_and_refused_where_it_has_no_use(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("photos #1", "p: q"):
        code, _, complaint = typed(monkeypatch, capsys, "train", "photos", "--path", name)
        assert code == 2
        assert str(tmp_path / name) in complaint
    code, _, complaint = typed(monkeypatch, capsys, "train", "geq_digits", "--path", "mine")
    assert code == 2
    assert "digits is not read from data.path" in complaint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "content"), [("metrics.jsonl", "5\n"), ("environment.json", "[]")]
)
def test_files_of_another_kind_are_told(file, content, trained, tmp_path, monkeypatch, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(trained[0], copy)
    (copy / file).write_text(content)
    code, _, complaint = typed(monkeypatch, capsys, "report", copy)
    assert code == 2
    assert f"{file} cannot be read" in complaint


def test_damaged_checkpoints_are_told_in_one_line(trained, tmp_path, monkeypatch, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(trained[0], copy)
    path = copy / "best.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    (copy / "last.safetensors").write_bytes(b"short")
    for arguments in (("evaluate", copy), ("train", "--resume", "--run-dir", copy)):
        code, _, complaint = typed(monkeypatch, capsys, *arguments)
        assert code == 2
        assert "damaged" in complaint
        assert complaint.count("\n") == 1
    assert path.read_bytes() == bytes(content)


def test_comparisons_go_on_where_they_stopped(tmp_path):
    arguments = ["compare", "opteq_single_digits", "resnet_digits", "--seeds", "2", *SMALL]
    arguments += ["--set", "train.epochs=2", "--output", tmp_path / "c"]
    result = run_inside(*arguments)
    assert result.exit_code == 0, result.output
    table = (tmp_path / "c" / "table.md").read_text()
    assert "opteq_single_digits" in table
    assert "+-" in table
    assert (tmp_path / "c" / "report.html").is_file()
    pictures = {path.name for path in (tmp_path / "c").glob("*.png")}
    assert pictures == {"accuracy.png", "epochs.png", "seconds.png"}
    rows = (tmp_path / "c" / "table.csv").read_text().splitlines()
    assert len(rows) == 3
    stamp = (tmp_path / "c" / "resnet_digits-seed1" / "last.safetensors").stat().st_mtime_ns
    again = run_inside(*arguments)
    assert again.exit_code == 0
    assert (tmp_path / "c" / "table.csv").read_text().splitlines() == rows
    assert (tmp_path / "c" / "resnet_digits-seed1" / "last.safetensors").stat().st_mtime_ns == stamp


def test_every_suite_prints_tables_and_writes_pictures(trained, monkeypatch):
    pytest.importorskip("imagecorruptions")
    few = Attack(8 / 255, steps=4), Attack(0.5, "l2", steps=4)
    monkeypatch.setattr("opteq.evaluation.suites.STANDARD", few)
    monkeypatch.setattr("opteq.evaluation.suites._SECONDS", 0.0)
    folder, _ = trained
    suites = ("corruption", "attack", "saliency", "convergence", "efficiency")
    chosen = [word for suite in suites for word in ("--suite", suite)]
    result = run_inside("evaluate", folder, "--limit", 3, *chosen)
    assert result.exit_code == 0, result.output
    shares = re.findall(
        r"accuracy, (?:noise|blur|weather|digital corruptions) +(\S+)", result.output
    )
    assert len(shares) == 4
    assert all(share.endswith("%") for share in shares)
    for words in (
        "under corruption, 3 test images",
        "error under corruption",
        "under PGD-4, 3 test images",
        "worst case",
        "unrolled, K = 20",
        "Solves of layer 1, batch of 3",
    ):
        assert words in result.output
    for name in ("corruption", "attack-linf", "attack-l2", "saliency", "residual", "objective"):
        assert (folder / "evaluate" / f"{name}.png").stat().st_size > 5000
    assert run_inside("report", folder).exit_code == 0
    page = (folder / "report.html").read_text()
    for words in ("Measured later", "Under attack", "Damaged images", "How solves converge"):
        assert words in page
    assert page.count('<img src="data:image/png;base64,') >= 6
    begin = time.perf_counter()
    again = json.loads(
        run_inside("evaluate", folder, "--limit", 3, "--suite", "corruption", "--json").stdout
    )
    assert time.perf_counter() - begin < 10  # its 95 figures are known
    assert len(again["tables"][0]["rows"]) == 19


def test_an_experiment_is_reproduced(tmp_path):
    arguments = ("reproduce", "mopteq-t3", "--set", "train.steps=1", "--limit", 4)
    result = run_inside(*arguments, "--output", tmp_path)
    assert result.exit_code == 0, result.output
    assert "LIMITED to 4 test images" in result.output
    assert "| without heritage" in result.output
    assert "heritage contributes more than diversity" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "runs",
        "mopteq-t3.md",
        "mopteq-t3.html",
        "tables",
        "pictures",
    }


def test_experiments_are_listed_at_once():
    begin = time.perf_counter()
    code, output, _ = opteq("reproduce", "--list")
    assert code == 0
    assert len(output.splitlines()) == len(TITLES)
    assert time.perf_counter() - begin < 5


def test_certificates_and_the_papers_bounds_are_printed(trained):
    folder, _ = trained
    result = run_inside("certify", folder, "--limit", 8, "--steps", 2, "--radius", 0.1)
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()[:2]
    assert first.startswith("Every equilibrium is proved to exist and to be unique")
    assert second.startswith("The median certified radius")
    for words in ("image to logits, Lipschitz", "proposition 3, GEQ", "remark 2", "| 0.1 "):
        assert words in result.output
    assert (folder / "certify").is_dir()


def test_weights_of_the_library_are_judged_by_name(tmp_path, monkeypatch):
    """Twice: what is written must not stand in the way of the name."""
    monkeypatch.chdir(tmp_path)
    certify = ("certify", "geq_digits", "--limit", 10, "--steps", 1, "--radius", 0.1)
    for command in (certify, certify, ("evaluate", "geq_digits", "--suite", "calibration")):
        result = run_inside(*command)
        assert result.exit_code == 0, result.output
    export = ("export", "geq_digits", "--format", "torch-export", "--steps", 2)
    assert run_inside(*export).exit_code == 0
    assert sorted(str(p) for p in Path().rglob("*") if p.is_file()) == [
        "certify/geq_digits/accuracy.csv",
        "certify/geq_digits/accuracy.png",
        "evaluate/geq_digits/reliability.png",
        "geq_digits.pt2",
    ]


def test_names_are_printed_as_they_are(tmp_path, monkeypatch, capsys):
    """Folders and classes whose names rich or matplotlib would take for markup or formulas."""
    for part in ("train", "val"):
        for name in ("$x^{2$", "[red]dog[/b]", "a$b$"):
            home = tmp_path / "[red] data" / part / name.replace("/", "\u2215")
            home.mkdir(parents=True)
            for i in range(4):
                pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), np.uint8)
                Image.fromarray(pixels).save(home / f"{i}.png")
    run = tmp_path / "[b] run [/b]"
    arguments = ["train", "geq_digits", "--run-dir", run, *SMALL[4:]]
    settings = (
        "data.name=folder",
        f"data.path={json.dumps(str(tmp_path / '[red] data'))}",
        "data.image_size=8",
    )
    arguments += [word for setting in settings for word in ("--set", setting)]
    code, output, complaint = typed(monkeypatch, capsys, *arguments)
    assert code in (0, None), complaint
    assert f"report: {run}/report.html" in output
    result = run_inside("evaluate", run, "--suite", "saliency")
    assert result.exit_code == 0, result.output
    shown = "".join(result.output.split())
    assert "".join(str(run).split()) in shown
    assert "[red]d" in shown


FOLDER = (*SMALL, "--set", "data.name=folder", "--set", "data.image_size=8")


def in_classes(home):
    """Eight images, in two folders."""
    for label in ("cat", "dog"):
        (home / label).mkdir(parents=True)
        for i in range(4):
            Image.effect_noise((8, 8), 30 * (i + 1)).convert("RGB").save(home / label / f"{i}.png")
    return home


def test_photographs_of_ones_own_are_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPTEQ_DATA", raising=False)
    code, _, complaint = typed(monkeypatch, capsys, "train", "photos")
    assert code == 2
    assert "--path my_photos" in complaint
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_images_have_moved_asks_where_they_are(tmp_path, monkeypatch, capsys):
    run, home = tmp_path / "run", in_classes(tmp_path / "mine")
    (home / "cat" / "0.png").write_text("no image")
    skip = ("--set", "data.undecodable=skip", "--path", home)
    result = run_inside("train", "--run-dir", run, *FOLDER, *skip)
    assert result.exit_code == 0
    assert (
        f"1 file was left out, since it could not be decoded:\n  {home}/cat/0.png" in result.output
    )
    now = home.rename(tmp_path / "moved")
    commands = (
        ("evaluate", run, "--json"),
        ("certify", run, "--limit", 2, "--steps", 1, "--radius", 0.1),
        ("report", run),
        ("export", run, "--format", "torch-export", "--steps", 1),
        ("train", "--resume", "--run-dir", run, "--epochs", 2, "--quiet"),
    )
    for command in commands:
        code, _, complaint = typed(monkeypatch, capsys, *command)
        assert code == 2
        assert f"There is no folder {home}. If it has moved" in complaint
        assert "--path DIR" in complaint
        code, _, complaint = typed(monkeypatch, capsys, *command, "--path", now)
        assert code in (0, None), complaint
    assert not len(gather([run], path=home).images)
    # A run that was resumed elsewhere looks there from then on.
    assert len(gather([run]).images) == 1  # of two, one cannot be decoded
    assert run_inside("evaluate", run).exit_code == 0


def test_a_run_remembers_its_data_folder_and_keeps_it_to_itself(tmp_path):
    home = in_classes(tmp_path / "mine")
    arguments = ("train", "--run-dir", "run", "--data-dir", "mine", "--quiet", *FOLDER)
    code, _, complaint = opteq(*arguments, cwd=tmp_path)
    assert code == 0, complaint
    run = tmp_path / "run"
    assert run_inside("evaluate", run).exit_code == 0
    for name in ("report.html", "recipe.yaml"):
        assert str(home) not in (run / name).read_text()
    for name in ("best.safetensors", "last.safetensors"):
        assert str(home).encode() not in (run / name).read_bytes()
    now = home.rename(tmp_path / "moved")
    assert run_inside("evaluate", run).exit_code == 1
    resume = ("train", "--resume", "--run-dir", run, "--epochs", 2, "--data-dir", now, "--quiet")
    assert run_inside(*resume).exit_code == 0
    assert run_inside("evaluate", run).exit_code == 0


def test_a_run_that_became_nan_is_told_in_one_line(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    diverging = ("--set", "train.optimizer.learning_rate=1e30")
    code, _, complaint = opteq("train", "--run-dir", run, *SMALL, *diverging)
    assert code == 0, complaint
    assert (run / "report.html").is_file()
    assert "diverged" in complaint
    result = run_inside("evaluate", run, "--json", "--suite", "calibration")
    assert result.exit_code == 0
    found = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(name))
    assert found["accuracy"] == 0
    assert found["loss"] is None
    assert found["calibration_error"] is None
    for arguments in (("certify", run), ("evaluate", run, "--suite", "attack")):
        code, _, complaint = typed(monkeypatch, capsys, *arguments)
        assert code == 2
        assert "Traceback" not in complaint
        assert "not finite numbers" in complaint.splitlines()[-1]


def test_corruption_figures_belong_to_their_images(trained, tmp_path):
    """Other test images in the same place are not those that were measured."""
    from opteq.data.corruption import corrupted
    from opteq.data.dataset import content_key

    pytest.importorskip("imagecorruptions")
    import torch

    x = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    turned = x.flip(-1)  # of the same shape and the same sum
    first = corrupted(x, "brightness", 3, cache=tmp_path)
    other = corrupted(turned, "brightness", 3, cache=tmp_path)
    assert torch.equal(corrupted(x, "brightness", 3, cache=tmp_path), first)
    assert torch.equal(other, corrupted(turned, "brightness", 3))
    assert len(list(tmp_path.iterdir())) == 2
    assert content_key(x) != content_key(turned) != content_key(turned.long())
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:50])
    assert torch.equal(corrupted(x, "brightness", 3, cache=tmp_path), first)


def test_versions_and_modules():
    done = subprocess.run(
        [sys.executable, "-m", "opteq", "--version"], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == f"opteq {__version__}"


SHOWN = {
    "geq_digits": ("train.optimizer.learning_rate", "0.005", "norm_bound", "patch"),
    "proximal_tiny": ("options", "side", "potential"),
    "digits": ("1,797",),
}


@pytest.mark.parametrize("name", SHOWN)
def test_show_says_everything(name):
    result = run_inside("show", name)
    assert result.exit_code == 0
    for words in SHOWN[name]:
        assert words in result.stdout


def test_shown_options_are_those_of_the_builder():
    """They are read from the source, so that torch is not imported."""
    for name in list_models():
        found = json.loads(run_inside("show", name, "--json").stdout)
        shown = found["options, as model.options.NAME in recipes"]
        assert list(shown) == list(inspect.signature(builder(name)).parameters)


def test_every_key_of_a_recipe_is_shown_and_can_be_set():
    found = json.loads(run_inside("show", "geq_digits", "--json").stdout)
    keys = found["keys, to be changed with --set KEY=VALUE"]
    assert len(keys) > 50
    recipe = load_recipe("geq_digits", [f"train.epochs={2 * keys['train.epochs']}"])
    assert recipe.train.epochs == 2 * keys["train.epochs"]


def test_names_that_match_nothing_say_so():
    result = run_inside("list", "models", "zzz*")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert json.loads(run_inside("list", "models", "geq_d*", "--json").stdout).keys() >= {
        "geq_digits"
    }


def test_commands_are_listed_each_in_one_sentence():
    listed = run_inside("--help").stdout
    for command in app.registered_commands:
        assert command.callback is not None
        assert command.short_help is not None
        words = " ".join((command.callback.__doc__ or "").split())
        assert re.search(rf"│ {command.name} ", listed)
        assert words.startswith(command.short_help.removesuffix("."))
        assert "\n" not in command.short_help


def test_help_has_an_example_of_every_command_and_loses_no_words():
    commands = [command.name for command in app.registered_commands]
    assert len(commands) >= 14
    for command in commands:
        text = run_inside(command, "--help").stdout
        assert re.search(rf"^ opteq {command}", text, re.MULTILINE), command
    words = re.sub(r"[\s│]+", " ", run_inside("train", "--help").stdout)
    assert "(default: runs/RECIPE, numbered if taken)" in words


def test_findings_can_be_read_by_programs(trained, tmp_path):
    found = json.loads(
        run_inside("certify", trained[0], "--json", "--limit", 10, "--steps", 1).stdout
    )
    assert found["unique"] is True
    assert found["certified"][0] <= found["attacked"][0]
    assert all(claim["name"] for claim in found["claims"])
    image = tmp_path / "digit.png"
    Image.new("L", (8, 8), 200).save(image)
    line = json.loads(run_inside("predict", trained[0], image, "--json").stdout)
    assert line["file"] == str(image)
    assert 0 <= line["entropy"] <= 3.33
    table = run_inside("predict", trained[0], tmp_path, "--csv").stdout.splitlines()
    assert table[0].startswith("file,class,probability,entropy,margin,converged")
    assert len(table) == 2


def test_explanations_are_kept_apart_from_the_images(trained, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine").mkdir()
    image = tmp_path / "mine" / "digit.png"
    Image.new("L", (8, 8), 200).save(image)
    monkeypatch.chdir(tmp_path)
    result = run_inside("explain", trained[0], image)
    assert "Taken for" in result.stdout
    assert "picture: explained/digit-explained.png" in result.stdout
    assert Path("explained/digit-explained.png").stat().st_size > 10_000
    assert list(image.parent.iterdir()) == [image]
    code, _, complaint = typed(monkeypatch, capsys, "explain", trained[0], image)
    assert code == 2
    assert "exists already. Give another --output, or --force" in complaint


def test_progress_is_also_told_in_a_pipe(capsys, monkeypatch):
    now = iter([0.0, 3.0, 11.0, 11.0, 15.0, 30.0, 30.0])
    monkeypatch.setattr("opteq.cli.console.time.monotonic", lambda: next(now))
    with progress_in_words() as tell:
        for text in ("1 of 4", "2 of 4", "3 of 4", "4 of 4"):
            tell(text)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["2 of 4", "4 of 4"]
