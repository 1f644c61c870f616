"""From a recipe to the model it trains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch

from opteq.context import at_most, eval_mode
from opteq.data.batches import pixel_statistics, read_batches
from opteq.data.dataset import Data, Task, decodable
from opteq.data.settings import AugmentSettings
from opteq.errors import LawError, OpteqError, RecipeError
from opteq.layer import equilibria
from opteq.models.narrowing import narrowed
from opteq.models.network import Network
from opteq.models.own import check_terms, require_logits
from opteq.models.registry import create_model, defaults_of, is_own, options_of, renamed
from opteq.training.checkpoint import load_checkpoint, unpack
from opteq.training.recipe import LossSettings, ModelSettings, Recipe

# Tasks that learn from the data of another.
_DATA_OF: dict[Task, Task] = {"seeded": "segmentation"}


def build_model(recipe: Recipe, data: Data) -> Network:
    """The model with the classes and channels of the data, normalised by its training images, and
    tried on one image, so that a mismatch is found before anything is written."""
    task = task_of(recipe.model)
    if _DATA_OF.get(task, task) != data.task:
        raise RecipeError(
            f"{recipe.model.name} is for {task}, {data.name} for {data.task}.",
            "Choose a model and data of the same kind.",
        )
    if recipe.data.undecodable == "stop":
        next(read_batches(data.train, [torch.tensor([0])], device=torch.device("cpu")))
    _refuse_too_large(recipe, data)
    torch.manual_seed(recipe.seed)
    _refuse_what_has_no_use(recipe, data)
    model = shaped_model(recipe.model, len(data.classes), data.shape[0])
    model.normalize(*pixel_statistics(data.train))
    model.class_names = data.classes
    if recipe.train.init_from is not None:
        start_from(model, Path(recipe.train.init_from))
    _try(model, recipe, data)
    return model


def start_from(model: Network, run: Path) -> list[str]:
    """Give a model the weights of a run, all that fit; returns the names of those that do not, such
    as those of a head for other classes. Pixels stay normalised by the model's own data."""
    path = run / "best.safetensors"
    tensors, _ = load_checkpoint(path)
    found, own = unpack("model/", tensors), model.state_dict()
    pixels = ("pixel_mean", "pixel_std")
    fits = {
        name: value
        for name, value in found.items()
        if name in own and own[name].shape == value.shape and name not in pixels
    }
    left = [name for name in own if name not in fits and name not in pixels]
    if len(fits) < len(own) / 2:
        raise RecipeError(
            f"Of the {len(own)} weights of this model, {path} has only {len(fits)} that fit.",
            "Give train.init_from a run of the same model.",
        )
    model.load_state_dict(fits, strict=False)
    return left


def _refuse_what_has_no_use(recipe: Recipe, data: Data) -> None:
    """Settings that a task cannot follow must not be ignored in silence."""
    if data.task != "restoration":
        return
    fixed = AugmentSettings(), LossSettings(error=recipe.train.loss.error)
    if recipe.train.adversarial is not None or (recipe.augment, recipe.train.loss) != fixed:
        raise RecipeError(
            "Restoration has no use for augment, train.adversarial, or any train.loss but error.",
            "Leave them out; measure.crop says how images are cut.",
        )


def _refuse_too_large(recipe: Recipe, data: Data) -> None:
    """Refuse weights that do not fit into memory: the system would kill the process."""
    model = skeleton(recipe.model, len(data.classes), data.shape[0])
    needed = 4 * sum(value.numel() for value in model.state_dict().values())
    if not hasattr(os, "sysconf"):
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory / 4:  # weights, gradients, momentum and activations
        raise RecipeError(
            f"{recipe.model.name} with these options has {needed / 1e9:,.0f} GB of weights, but "
            f"this machine has {memory / 1e9:,.0f} GB of memory.",
            "Lower model.options.",
        )


def shaped_model(settings: ModelSettings, classes: int, channels: int) -> Network:
    """A registered model for this many classes and channels."""
    known = options_of(settings.name)
    settings = settings.model_copy(update={"options": renamed(settings.options)})
    for name, found in (("classes", classes), ("in_channels", channels)):
        if settings.options.get(name, found) != found:
            raise RecipeError(
                f"model.options.{name}={settings.options[name]!r}, but the data has {found}.",
                "Leave it out: it follows from the data.",
            )
    options = {"classes": classes, "in_channels": channels, **settings.options}
    options = {key: _tuples(value) for key, value in options.items() if key in known}
    try:
        return create_model(settings.name, **options)
    except OpteqError as error:
        raise RecipeError(f"model: {error.problem}", error.remedy) from None
    except (TypeError, ValueError, RuntimeError, OverflowError, MemoryError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise RecipeError(f"model.options do not fit: {line}.", "Check their types.") from None


def skeleton(settings: ModelSettings, classes: int, channels: int) -> Network:
    """The model without memory for its weights; not to be changed, since it is kept."""
    if is_own(settings.name):  # whose file may have changed
        with torch.device("meta"):
            return shaped_model(settings, classes, channels)
    return _skeleton(settings.model_dump_json(), classes, channels)


@lru_cache(maxsize=1000)
def _skeleton(settings: str, classes: int, channels: int) -> Network:
    with torch.device("meta"):
        return shaped_model(ModelSettings.model_validate_json(settings), classes, channels)


def narrowed_model(settings: ModelSettings) -> ModelSettings:
    """The same model with few channels."""
    own = {key: _tuples(value) for key, value in settings.options.items()}
    return ModelSettings(name=settings.name, options=narrowed(settings.name, **own))


def _tuples(value: object) -> object:
    """YAML has lists where builders take tuples."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _try(model: Network, recipe: Recipe, data: Data) -> None:
    x = next(decodable(data.train))[0][None].float() / 255
    try:
        with torch.no_grad(), eval_mode(model), at_most(model, 1):
            logits = model(x)
            if is_own(recipe.model.name):
                require_logits(logits, len(data.classes), recipe.model.name)
                check_terms(model, x)
    except LawError as error:
        raise RecipeError(f"{recipe.model.name}: {error.problem}", error.remedy) from None
    except OpteqError as error:
        raise RecipeError(
            f"{_does_not_take(recipe, data, x)} {error.problem}", error.remedy
        ) from None
    except (RuntimeError, ValueError, TypeError) as error:
        if not is_own(recipe.model.name):
            raise
        line = " ".join(str(error).split())[:160]
        raise RecipeError(
            f"{_does_not_take(recipe, data, x)} {line}", "Check its shapes."
        ) from error


def _does_not_take(recipe: Recipe, data: Data, x: torch.Tensor) -> str:
    return f"{recipe.model.name} does not take the images of {data.name}, {tuple(x.shape[1:])}:"


def task_of(settings: ModelSettings) -> Task:
    """The task of a model."""
    options = {**defaults_of(settings.name), **settings.options}
    return options.get("task", "classification")


def tolerances(model: torch.nn.Module) -> list[float]:
    """The tolerance of every equilibrium."""
    return [layer.solver.tol for layer in equilibria(model)]


def set_tolerances(model: torch.nn.Module, values: Sequence[float] | float | None) -> None:
    """Set the tolerance of each equilibrium, or one for all; None changes nothing."""
    layers = equilibria(model)
    if values is None:
        return
    each = values if isinstance(values, Sequence) else [values] * len(layers)
    for layer, value in zip(layers, each, strict=True):
        if layer.solver.tol != value:
            layer.solver = replace(layer.solver, tol=value)
