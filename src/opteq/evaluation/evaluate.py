"""Evaluation of a trained run on the test images of its recipe."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from opteq.addresses import without_folder
from opteq.data.batches import Skipped, evaluation_batches, read_batches
from opteq.data.dataset import Data, ImageSet
from opteq.data.settings import MeasureSettings
from opteq.data.splits import limited
from opteq.errors import (
    NotConvergedWarning,
    OptionError,
    RunError,
    UnknownOptionError,
    nearest,
)
from opteq.evaluation.adaptive import Evidence, predict_adaptively
from opteq.evaluation.calibration import Reliability, calibration_figures, reliability
from opteq.evaluation.outcome import Evaluation
from opteq.evaluation.suites import SUITES as MORE
from opteq.evaluation.suites import Subject
from opteq.models.network import Classifier, Network, is_right
from opteq.models.restorer import Restorer
from opteq.models.seeded import Seeded
from opteq.training.folder import RunFolder
from opteq.training.inert import warn_if_inert
from opteq.training.load import load
from opteq.training.recipe import Recipe
from opteq.training.tally import Sums, Tally
from opteq.training.tasks import tally_for

SUITES = ("accuracy", "calibration", *MORE)


def load_run(
    path: Path,
    *,
    checkpoint: str = "best",
    data_dir: Path | None = None,
    images: Path | None = None,
    data: Data | None = None,
    limit: int | None = None,
) -> tuple[Network, Data, Any]:
    """The model of a run, its data unless other `data` is given, and batches of the test images or
    a sample of them; `images` is where a user's own have moved to."""
    model = load(path, checkpoint)  # type: ignore[arg-type]
    data = RunFolder(path).data(data_dir, images) if data is None else data
    require_same_classes(model, data, path)
    return model, data, _test_batches(model, data, limit)


def evaluate_run(
    path: Path,
    *,
    checkpoint: str = "best",
    data_dir: Path | None = None,
    images: Path | None = None,
    limit: int | None = None,
    suites: Sequence[str] = ("accuracy",),
    adaptive: bool = False,
    noise: float | None = None,
    data: Data | None = None,
    progress: Callable[[str], object] = lambda _: None,
) -> Evaluation:
    """Test a run on the test images of its recipe, or of other `data`; see `evaluate_model`.
    `noise` is for models that restore images, in grey levels of 255; by default that of the
    recipe."""
    require_suites(suites)
    model, data, _ = load_run(
        path, checkpoint=checkpoint, data_dir=data_dir, images=images, data=data, limit=limit
    )
    recipe = RunFolder(path).recipe
    return evaluate_model(
        model,
        data,
        what=f"{without_folder(recipe.model.name)}, {_weights(recipe, checkpoint)} of {path}",
        split=recipe.data.split,
        seed=recipe.seed,
        folder=RunFolder(path).results("evaluate"),
        limit=limit,
        suites=suites,
        adaptive=adaptive,
        measure=_measure(recipe.measure, model, noise),
        progress=progress,
    )


def _weights(recipe: Recipe, checkpoint: str) -> str:
    """Which weights these are; the best are the last where no images were kept back to choose."""
    if checkpoint == "best" and not recipe.data.validation:
        return "last epoch"
    return f"{checkpoint} checkpoint"


def _measure(own: MeasureSettings, model: Network, noise: float | None) -> MeasureSettings:
    if noise is None:
        return own
    if not isinstance(model, Restorer):
        raise OptionError("This model does not restore images.", "Leave the noise out.")
    return MeasureSettings(**{**own.model_dump(), "test_noise": noise})


def require_suites(names: Sequence[str]) -> None:
    """Refuse names of suites that do not exist."""
    for name in names:
        if name not in SUITES:
            raise UnknownOptionError(f"There is no suite {name!r}.", nearest(name, SUITES))


def evaluate_model(
    model: Network,
    data: Data,
    *,
    what: str,
    folder: Path,
    split: str = "standard",
    seed: int | None = None,
    limit: int | None = None,
    suites: Sequence[str] = ("accuracy",),
    adaptive: bool = False,
    measure: MeasureSettings | None = None,
    progress: Callable[[str], object] = lambda _: None,
) -> Evaluation:
    """Test a model on test images; if `adaptive`, also with steps only where they can change the
    class (see `opteq.evaluation.adaptive`). `folder` keeps results that are slow to compute."""
    require_suites(suites)
    test = limited(data.test, limit)
    measure = MeasureSettings() if measure is None else measure
    found = on_test_images(model, data, limit, measure)
    part = f"{len(test):,} of {len(data.test):,}" if limit else f"{len(test):,}"
    protocol = f"{what}, {data.name} ({split} split), {part} test images"
    if isinstance(model, Restorer):
        protocol += f", noise {measure.test_noise:g} of 255"
    if isinstance(model, Seeded):
        protocol += f", {measure.seeds} marks of each class"
    figures = found.figures()
    warn_if_inert(model, figures)
    bins = None
    if "calibration" in suites:
        added, bins = _calibration(model, data, limit)
        figures |= added
    if adaptive:
        figures |= _adaptive_figures(model, data, limit)
    evaluation = Evaluation(
        protocol if seed is None else f"{protocol}, seed {seed}",
        figures,
        found.confusion.long().tolist() if isinstance(found, Tally) else [],
        data.classes,
        dict(found.failures),
        bins,
    )
    chosen = [MORE[name] for name in suites if name in MORE]
    if chosen:
        require_finite(model, what)
    if chosen and data.task == "segmentation":
        raise OptionError("These suites are only for classifiers.", "Leave --suite out.")
    subject = Subject(model, data, limit, folder, _weights_key(model), progress)
    for suite in chosen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            more = suite(subject)
        evaluation.figures.update(more.figures)
        evaluation.tables.extend(more.tables)
        evaluation.pictures.update(more.pictures)
    return evaluation


def _weights_key(model: Network) -> str:
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def on_test_images(
    model: Network, data: Data, limit: int | None = None, measure: MeasureSettings | None = None
) -> Sums:
    """A model on the test images, or a sample of them; `measure` says what it gets to see of them,
    where that is not the images themselves."""

    def read(at_once: int) -> Any:
        return _test_batches(model, data, limit, at_once=at_once)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return tally_for(model, read, len(data.classes), measure)


def _test_batches(
    model: Network,
    data: Data,
    limit: int | None,
    chosen: ImageSet | None = None,
    at_once: int = 256,
) -> Any:
    images = limited(data.test if chosen is None else chosen, limit)
    return read_batches(
        images,
        evaluation_batches(len(images), at_once),
        device=cast(torch.device, model.pixel_mean.device),
        undecodable="skip",
        skipped=Skipped(),
    )


def _calibration(
    model: Network, data: Data, limit: int | None
) -> tuple[dict[str, float], Reliability]:
    if data.task != "classification":
        raise OptionError("Calibration is only for classifiers.", "Leave --suite out.")
    logits, labels = _logits(model, _test_batches(model, data, limit))
    unseen = None
    if data.unseen is not None:
        unseen = _logits(model, _test_batches(model, data, limit, data.unseen))[0]
    return calibration_figures(logits, labels, unseen), reliability(logits, labels)


@torch.no_grad()
def _logits(model: Network, batches: Any) -> tuple[Tensor, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        found = [(model(images), labels) for images, labels in batches]
    return torch.cat([a for a, _ in found]), torch.cat([b for _, b in found])


@torch.no_grad()
def _adaptive_figures(model: Network, data: Data, limit: int | None) -> dict[str, float]:
    if not isinstance(model, Classifier):
        raise OptionError(
            f"{type(model).__name__} has no equilibria to stop early.", "Leave --adaptive out."
        )
    right = steps = decided = count = 0
    halves: list[list[Evidence]] = [[], []]
    for images, labels in _test_batches(model, data, limit):
        found = predict_adaptively(model, images)
        right += int(is_right(found.logits, labels).sum())
        steps += int(found.steps.sum())
        decided += int(found.decided.sum())
        count += len(images)
        for half, part in zip(halves, _halved(images), strict=True):
            half.append(Evidence.from_solving(model, part))
    # Each half with the caution that the other asks for.
    cautions = [Evidence.joined(half).caution() for half in reversed(halves)]
    calibrated_steps = changed = 0
    for images, _ in _test_batches(model, data, limit):
        classes = model(images).argmax(1)
        for caution, part, own in zip(cautions, _halved(images), _halved(classes), strict=True):
            found = predict_adaptively(model, part, caution=caution)
            calibrated_steps += int(found.steps.sum())
            changed += int((found.logits.argmax(1) != own).sum())
    return {
        "adaptive_accuracy": right / count,
        "adaptive_steps": steps / count,
        "adaptive_decided": decided / count,
        "calibrated_steps": calibrated_steps / count,
        "calibrated_changes": changed,
    }


def _halved(batch: Tensor) -> tuple[Tensor, Tensor]:
    return batch[::2], batch[1::2]


def require_finite(model: Network, what: object) -> None:
    """Refuse weights that are not finite: they cannot be attacked, explained or certified."""
    if not all(bool(value.isfinite().all()) for value in model.state_dict().values()):
        raise RunError(
            f"The weights of {what} are not finite numbers: its training diverged.",
            "Train again with a lower train.optimizer.learning_rate, or with train.clip.",
        )


def require_same_classes(model: Network, data: Data, path: Path) -> None:
    """A run can only be tested on data with its own classes."""
    if model.class_names != data.classes:
        raise RunError(
            f"{path} was trained on classes other than those of {data.name}.",
            "Use the data the run was made with.",
        )
