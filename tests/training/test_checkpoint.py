"""Checkpoints: whole or not at all, verified, and never code."""

import errno
import json
import os
import pickle

import pytest
import torch

import opteq
from opteq.errors import OpteqError, RunError
from opteq.models.narrowing import narrowed
from opteq.models.registry import spelt_out
from opteq.training.checkpoint import load_checkpoint, pack_model, save_checkpoint
from opteq.training.recipe_files import load_recipe, whole_recipe
from opteq.training.session import train

FACTS = {
    "model": {"name": "geq_digits", "options": {}},
    "classes": ["a", "b"],
    "shape": [1, 8, 8],
    "tolerance": 1e-4,
    "step": 3,
    "finished": False,
    "records": [],
}


class Attack:
    """Unpickling this would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    shared = torch.randn(4)
    return {
        "a": torch.randn(3, 5),
        "b/c": torch.arange(4),
        "scalar": torch.tensor(1.5, dtype=torch.float64),
        "half": torch.randn(2).bfloat16(),
        "x": shared,
        "y": shared,
        "turned": torch.randn(3, 2).T,
    }


def test_what_is_saved_comes_back(tensors, tmp_path):
    path = tmp_path / "c.safetensors"
    facts = FACTS | {"number": 0.1 + 0.2, "text": "ä"}
    save_checkpoint(path, tensors, facts)
    found, back = load_checkpoint(path)
    assert back == {"format": 1, **facts}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype


def test_every_flipped_byte_is_noticed(tensors, tmp_path):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, tensors, FACTS)
    content, noticed = path.read_bytes(), 0
    for position in range(len(content)):
        broken = bytearray(content)
        broken[position] ^= 0x10
        path.write_bytes(broken)
        # The header is padded with spaces, which carry nothing; all else must be noticed.
        try:
            found, facts = load_checkpoint(path)
        except RunError:
            noticed += 1
            continue
        assert facts["step"] == 3
        assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert len(content) - 8 < noticed < len(content) + 1


def test_every_truncation_is_noticed(tensors, tmp_path):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, tensors, FACTS)
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(RunError, match=r"c\.safetensors"):
            load_checkpoint(path)


def test_no_file_can_run_code(tmp_path):
    mark = tmp_path / "executed"
    path = tmp_path / "c.safetensors"
    for content in (pickle.dumps(Attack(mark)), b"cos\nsystem\n(S'true'\ntR."):
        path.write_bytes(content)
        with pytest.raises(RunError):
            load_checkpoint(path)
    torch.save({"x": Attack(mark)}, path)
    with pytest.raises(RunError):
        load_checkpoint(path)
    assert not mark.exists()


def test_strange_files_are_refused(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "c.safetensors"
    with pytest.raises(RunError, match="does not exist"):
        load_checkpoint(path)
    save_file({"x": torch.ones(1)}, path)
    with pytest.raises(RunError, match="not a checkpoint of opteq"):
        load_checkpoint(path)


def test_other_formats_are_told_apart(tensors, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    monkeypatch.setattr("opteq.training.checkpoint.FORMAT", 99)
    save_checkpoint(path, tensors, {})
    monkeypatch.setattr("opteq.training.checkpoint.FORMAT", 1)
    with pytest.raises(RunError, match="format 99"):
        load_checkpoint(path)


@pytest.mark.parametrize("call", ["write", "fsync", "close"])
def test_a_full_disk_leaves_the_old_file(call, tensors, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, tensors, FACTS | {"step": 1})
    before = path.read_bytes()
    original = getattr(os, call)
    failing = True

    def full(*arguments):
        nonlocal failing
        if call == "close":
            original(*arguments)
        if failing:
            failing = False
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*arguments)

    monkeypatch.setattr(os, call, full)
    with pytest.raises(RunError, match="No space left on device"):
        save_checkpoint(path, tensors, FACTS | {"step": 2})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert load_checkpoint(path)[1]["step"] == 1


def test_a_missing_folder_is_told(tensors, tmp_path):
    with pytest.raises(RunError, match="cannot be written"):
        save_checkpoint(tmp_path / "none" / "c.safetensors", tensors, {})


def test_facts_are_plain_json(tensors, tmp_path):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, tensors, {"records": [{"loss": 1e-300}]})
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["opteq"])["records"][0]["loss"] == 1e-300


@pytest.mark.parametrize(
    "edit",
    [
        {"model": None},
        {"model": {"options": {}}},
        {"classes": "ab"},
        {"classes": [1, 2]},
        {"shape": [1, 8]},
        {"shape": [1, 8, 10**9]},
        {"step": "3"},
        {"records": [{}]},
        {"finished": None},
        {"tolerance": "small"},
    ],
)
def test_facts_that_anyone_may_have_written_are_checked(edit, tensors, tmp_path):
    """A right digest says that a file is whole, not that it is ours."""
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, tensors, FACTS | edit)
    with pytest.raises(RunError, match=next(iter(edit))):
        load_checkpoint(path)
    save_checkpoint(path, tensors, {k: v for k, v in FACTS.items() if k not in edit})
    if edit != {"tolerance": "small"}:  # which may be absent
        with pytest.raises(RunError, match=next(iter(edit))):
            load_checkpoint(path)


@pytest.mark.parametrize(
    "model",
    [
        {"name": "geq_digits", "options": {"channels": 10**8}},
        {"name": "geq_digits", "options": {"chanels": 8}},
        {"name": "no_such_model"},
        {"name": "geq_digits", "options": {"middle": 3}},
        {"name": "geq_digits", "surprise": 1},
    ],
)
def test_a_model_that_does_not_belong_to_its_weights_takes_no_memory(model, tensors, tmp_path):
    (tmp_path / "recipe.yaml").write_text("model: {name: geq_digits}\ndata: {name: digits}\n")
    save_checkpoint(tmp_path / "best.safetensors", tensors, FACTS | {"model": model})
    with pytest.raises(OpteqError):
        opteq.load(tmp_path)


def test_a_run_stays_what_it_is_when_the_catalogue_changes(tmp_path):
    """KerDEQ's hidden width was 64 before runs kept all their options."""
    small = {**narrowed("kerdeq_cifar10_5m")}
    del small["hidden"]
    model = opteq.create_model("kerdeq_cifar10_5m", **small, hidden=64)
    facts = FACTS | {
        "model": {"name": "kerdeq_cifar10_5m", "options": small},
        "classes": [str(n) for n in range(10)],
        "shape": [3, 32, 32],
    }
    save_checkpoint(tmp_path / "best.safetensors", pack_model(model.state_dict()), facts)
    loaded = opteq.load(tmp_path)
    x = torch.rand(2, 3, 32, 32)
    assert torch.allclose(loaded(x), model.eval()(x), atol=1e-3)
    assert spelt_out("kerdeq_cifar10_5m", {})["hidden"] == 32
    assert "classes" not in spelt_out("kerdeq_cifar10_5m", {})


def test_a_run_keeps_every_option_of_its_model(tmp_path):
    recipe = load_recipe("geq_digits", ["train.steps=1", "model.options.gamma=0.3"])
    run, _ = train(recipe, tmp_path / "run")
    kept = run.recipe.model.options
    assert kept["gamma"] == 0.3
    assert kept["hidden"] == 32
    assert load_checkpoint(run.last)[1]["model"]["options"] == kept
    assert run.recipe == whole_recipe(recipe)


def test_runs_on_the_hub_are_weights_and_recipe_alone(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    model = opteq.create_model("geq_digits", pretrained=True)
    opteq.save(model, tmp_path / "saved")
    asked = {}

    def download(name, **options):
        asked.update(options, name=name)
        return str(tmp_path / "saved")

    monkeypatch.setattr(hub, "snapshot_download", download)
    x = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(opteq.load("hf:somebody/digits@v1")(x), model(x))
    assert asked["name"] == "somebody/digits"
    assert asked["revision"] == "v1"
    assert set(asked["allow_patterns"]) == {"best.safetensors", "last.safetensors", "recipe.yaml"}

    def fail(name, **options):
        raise hub.errors.HFValidationError("no such repository")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(RunError, match="hf:somebody/digits cannot be fetched"):
        opteq.load("hf:somebody/digits")


def test_code_of_others_is_not_run(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef build(**options): pass\n")
    model = opteq.create_model("geq_digits", pretrained=True)
    model.origin = {"name": f"{trap}:build", "options": {}}
    opteq.save(model, tmp_path / "saved")
    monkeypatch.setattr(hub, "snapshot_download", lambda *a, **b: str(tmp_path / "saved"))
    with pytest.raises(RunError, match="a model of its own"):
        opteq.load("hf:somebody/trap")
    # Nor behind a checkpoint that is as it should be.
    (tmp_path / "saved" / "best.safetensors").rename(tmp_path / "saved" / "last.safetensors")
    opteq.save(opteq.create_model("geq_digits", pretrained=True), tmp_path / "saved")
    with pytest.raises(RunError, match="a model of its own"):
        opteq.load("hf:somebody/trap", "last")
    assert not (tmp_path / "sprung").exists()
