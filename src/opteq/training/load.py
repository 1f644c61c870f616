"""Trained models from run folders."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal

from opteq.errors import DataWarning, RunError
from opteq.models.network import Network
from opteq.models.registry import spelt_out
from opteq.options import one_of
from opteq.settings import settings_from
from opteq.training.build import set_tolerances, shaped_model, skeleton, task_of
from opteq.training.checkpoint import load_checkpoint, load_weights, require_fitting
from opteq.training.folder import RunFolder
from opteq.training.recipe import ModelSettings


def load(run: str | Path, checkpoint: Literal["best", "last"] = "best") -> Network:
    """The trained model of a run, in evaluation mode. It takes images in [0, 1] of the shape it was
    trained on; `model.class_names` has the names of its classes.

    "best" is the epoch that did best on images kept back for that purpose, or the last epoch if
    the recipe kept none; "last" is the last checkpoint, finished or not.
    """
    one_of("checkpoint", checkpoint, ("best", "last"))
    folder = RunFolder(Path(run))
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
    model.image_shape = tuple(facts["shape"])
    if not all(bool(value.isfinite().all()) for value in model.state_dict().values()):
        warnings.warn(
            f"{path} has weights that are not finite numbers: its training diverged. Lower "
            "train.optimizer.learning_rate, or set train.clip.",
            DataWarning,
            stacklevel=2,
        )
    return model.eval()
