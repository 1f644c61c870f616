"""Trained models from folders, and into them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, Literal

from opteq.addresses import is_address
from opteq.errors import DataWarning, OptionError, RunError
from opteq.files import make_folder
from opteq.layer import equilibria
from opteq.models.network import Network
from opteq.models.registry import spelt_out
from opteq.options import extra, one_of
from opteq.settings import settings_from
from opteq.training.build import set_tolerances, shaped_model, skeleton, task_of
from opteq.training.bundled import bundled, list_pretrained
from opteq.training.checkpoint import (
    load_checkpoint,
    load_weights,
    pack_model,
    require_fitting,
    save_checkpoint,
)
from opteq.training.folder import BEST, RunFolder
from opteq.training.recipe import ModelSettings

_HUB = "hf:"


def load(run: str | Path, checkpoint: Literal["best", "last"] = "best") -> Network:
    """The trained model of a run, in evaluation mode. It takes images in [0, 1] of the shape it was
    trained on; `model.class_names` has the names of its classes. Where there is no such folder, a
    name of `list_pretrained` stands for the weights that come with the library. "hf:OWNER/NAME" is
    a run on the Hugging Face hub, of which only weights and recipe are fetched.

    "best" is the epoch that did best on images kept back for that purpose, or the last epoch if
    the recipe kept none; "last" is the last checkpoint, finished or not.
    """
    one_of("checkpoint", checkpoint, ("best", "last"))
    if str(run).startswith(_HUB):
        fetched = _fetched(str(run).removeprefix(_HUB))
        _refuse_own(RunFolder(fetched), str(run))
        return load(fetched, checkpoint)
    folder = RunFolder(_home(run))
    path = folder.best if checkpoint == "best" else folder.last
    if checkpoint == "best" and not path.is_file() and folder.last.is_file():
        path = folder.last
    tensors, facts = load_checkpoint(path)
    settings = settings_from(ModelSettings, facts["model"], f"The model of {path}")
    options = spelt_out(settings.name, settings.options, old=True)
    settings = settings.model_copy(update={"options": options})
    if not facts["classes"] and task_of(settings) != "restoration":
        raise RunError(f"{path} names no classes.", "Train again.")
    expected = skeleton(settings, len(facts["classes"]), facts["shape"][0])
    require_fitting(expected, tensors, path)
    model = shaped_model(settings, len(facts["classes"]), facts["shape"][0])
    load_weights(model, tensors, path)
    set_tolerances(model, facts["tolerance"])
    model.class_names = tuple(facts["classes"])
    model.origin = {"name": settings.name, "options": settings.options}
    model.image_shape = tuple(facts["shape"])
    if not all(bool(value.isfinite().all()) for value in model.state_dict().values()):
        warnings.warn(
            f"{path} has weights that are not finite numbers: its training diverged. Lower "
            "train.optimizer.learning_rate, or set train.clip.",
            DataWarning,
            stacklevel=2,
        )
    return model.eval()


def _home(run: str | Path) -> Path:
    path = Path(run)
    if path.exists():
        return path
    found = bundled(str(run))
    if found is None:
        names = ", ".join(list_pretrained())
        raise RunError(
            f"There is no run {path}.", f"Give its folder, or weights of the library: {names}."
        )
    return found


def _fetched(name: str) -> Path:
    """The folder with weights and recipe of a run on the hub; nothing else is fetched."""
    with extra("hub", "Loading from the hub"):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    owner_and_name, _, revision = name.partition("@")
    try:
        found = snapshot_download(
            owner_and_name,
            revision=revision or None,
            allow_patterns=["best.safetensors", "last.safetensors", "recipe.yaml"],
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        line = " ".join(str(error).split())[:160]
        raise RunError(
            f"{_HUB}{name} cannot be fetched ({line}).", "Check the name and the network."
        ) from None
    return Path(found)


def _refuse_own(folder: RunFolder, run: str) -> None:
    """What comes from elsewhere names models of the library alone, and runs nothing here."""
    there = [path for path in (folder.best, folder.last) if path.is_file()]
    if not there:
        raise RunError(f"{run} has no weights.", "Choose a run that opteq has saved.")
    for path in there:
        model = load_checkpoint(path)[1]["model"]["name"]
        if is_address(model):
            raise RunError(
                f"{run} uses a model of its own ({model}), and its code is not downloaded.",
                "Get the code, look at it, and load the folder.",
            )


def save(model: Network, folder: str | Path, *, force: bool = False) -> Path:
    """Write a model into a folder from which `load` takes it again: the name and options it was
    made with, weights, class names and the shape of its images. Returns the folder."""
    path = Path(folder)
    target = path / BEST
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file.", "Give a folder.")
    if target.exists() and not force:
        raise RunError(f"{target} exists already.", "Give another folder, or force.")
    if not isinstance(model, Network):
        raise OptionError(
            f"This {type(model).__name__} is a module without a name to build it by again.",
            "Give the function that builds it one: opteq.register_model, then opteq.create_model.",
        )
    if model.origin is None:
        raise OptionError(
            f"opteq cannot tell how this {type(model).__name__} was built.",
            "Save models that come from opteq.create_model or opteq.load.",
        )
    if not model.image_shape:
        raise OptionError(
            "The model does not know the shape of its images.",
            "Set model.image_shape=(channels, height, width), and model.class_names.",
        )
    tolerances = [layer.solver.tol for layer in equilibria(model)]
    facts = {
        "model": {"name": model.origin["name"], "options": _plain(model.origin["options"])},
        "classes": list(model.class_names),
        "shape": list(model.image_shape),
        "tolerance": max(tolerances) if tolerances else None,
        "step": 0,
        "finished": True,
        "records": [],
    }
    make_folder(path)
    save_checkpoint(target, pack_model(model.state_dict()), facts)
    return path


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in options.items() if key not in ("classes", "in_channels")}
    try:
        return json.loads(json.dumps(own))
    except TypeError as error:
        raise OptionError(
            f"The model was made with options that cannot be saved in a file ({error}).",
            'Make it with names in their place, such as solver="anderson".',
        ) from None
