"""Recipes: everything a run depends on, in one file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator

from opteq.data.settings import AugmentSettings, DataSettings
from opteq.errors import OpteqError, RecipeError, UnknownOptionError, nearest
from opteq.settings import Settings, settings_from
from opteq.training.summaries import list_recipes, recipe_folder

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ModelSettings(Settings):
    """A registered model and the options that differ from its entry."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class OptimiserSettings(Settings):
    """How weights move."""

    name: Literal["sgd", "adamw"] = "sgd"
    learning_rate: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 0.0


class ScheduleSettings(Settings):
    """How the learning rate changes: step (times `factor` at `milestones`, or `every` so many
    epochs), cosine to zero, or poly, (1 - progress)^power. All may warm up linearly."""

    name: Literal["constant", "step", "cosine", "poly"] = "constant"
    milestones: tuple[Annotated[int, Field(ge=1)], ...] = ()
    every: Annotated[int, Field(ge=1)] | None = None
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    power: Positive = 0.9
    warmup_epochs: NotNegative = 0.0

    @field_validator("milestones", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class LossSettings(Settings):
    """Cross-entropy, and what is added to it."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    margin: NotNegative = 0.0
    """Taken from the logit of the true class before the cross-entropy, so that it has to lead by as
    much: for models that are certified."""
    jacobian: NotNegative = 0.0
    """Weight of an estimate of |J|_F^2 at the equilibria."""
    regularizer: Any = None
    """A feature regulariser by name, or a mapping with its name and options."""
    regularizer_weight: NotNegative = 0.01
    coupling: NotNegative = 0.0
    """Weight of MOptEq's heritage and diversity as a loss, the ablation of its figure 3c."""
    coupling_diversity: NotNegative = 0.01


class AdversarialSettings(Settings):
    """Training on images that projected gradient ascent has made worse."""

    steps: Annotated[int, Field(ge=1, le=1000)] = 3
    epsilon: Positive = 8 / 255
    step_size: Positive | None = None
    """By default 2.5 epsilon / steps."""


class SolveSettings(Settings):
    """How exactly equilibria are solved; by default as the model has it."""

    tolerance: Positive | None = None
    final_tolerance: Positive | None = None
    """Reached at the end, falling geometrically from `tolerance`."""
    evaluation_tolerance: Positive | None = 1e-4


class TrainSettings(Settings):
    """The training itself."""

    epochs: Annotated[int, Field(ge=1)] = 10
    steps: Annotated[int, Field(ge=1)] | None = None
    """Stop after so many steps, whatever the epoch."""
    batch_size: Annotated[int, Field(ge=1)] = 128
    """Of all devices together."""
    optimiser: OptimiserSettings = OptimiserSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    loss: LossSettings = LossSettings()
    clip: Positive | None = None
    """Largest norm of the gradient."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of an average of the weights, which is then what is evaluated."""
    adversarial: AdversarialSettings | None = None
    solve: SolveSettings = SolveSettings()
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"] = "32-true"
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    """Epochs between two tests; the last epoch is always tested."""
    checkpoint_minutes: Positive = 1.0
    """Time between two checkpoints inside an epoch."""


class Reference(Settings):
    """Where a recipe comes from, and what was reported there."""

    paper: str
    table: str
    accuracy: float | None = None
    """In percent; for segmentation the mean intersection over union."""


class Recipe(Settings):
    """Everything a run depends on."""

    name: str = "custom"
    summary: str = ""
    reference: Reference | None = None
    chosen: tuple[str, ...] = ()
    """What the paper leaves open, and what stands here."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    model: ModelSettings
    data: DataSettings
    augment: AugmentSettings = AugmentSettings()
    train: TrainSettings = TrainSettings()

    @field_validator("name")
    @classmethod
    def _as_folder(cls, value: str) -> str:
        """Runs are put into a folder of this name."""
        if not re.fullmatch(r"[\w][\w .+,=@()-]{0,119}", value) or value.endswith((" ", ".")):
            raise ValueError(
                "a name has up to 120 letters, digits and - _ + , = @ ( ), and begins with one of "
                "the first two"
            )
        return value

    @field_validator("chosen", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    def dump(self) -> str:
        """The recipe with every default spelt out, as YAML."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, width=100)


def load_recipe(
    source: str | Path | Recipe,
    overrides: Sequence[str] = (),
    *,
    changes: Mapping[str, Any] | None = None,
) -> Recipe:
    """A recipe by name or from a file, with overrides such as "train.epochs=5", or changes such as
    {"train": {"epochs": 5}}.

    >>> load_recipe("geq_digits", changes={"train": {"epochs": 5}}).train.epochs
    5
    """
    if isinstance(source, Recipe):
        path, values = Path(source.name), source.model_dump(mode="json")
    else:
        path = _find(source)
        values = {"name": path.stem, **_read(path)}
    for override in overrides:
        _apply(values, override)
    _merge(values, changes or {})
    recipe = settings_from(Recipe, values, f"The recipe {path.stem}")
    _check(recipe)
    return recipe


def _merge(values: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Put changes into values, group by group."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            _merge(values[key], value)
        else:
            values[key] = dict(value) if isinstance(value, Mapping) else value


def _find(source: str | Path) -> Path:
    path = Path(source)
    if path.suffix not in (".yaml", ".yml"):
        path = recipe_folder() / f"{source}.yaml"
        if not path.is_file():
            raise RecipeError(
                f"There is no recipe {str(source)!r}.", nearest(str(source), list_recipes())
            )
    return path


# PyYAML lets through what dates, numbers and deep nesting raise.
_NOT_YAML = (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError, AttributeError)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-3, without a point, as text; here it is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise RecipeError(f"{path} cannot be read ({error.strerror}).", "Check the path.") from None
    except _NOT_YAML as error:
        line = " ".join(str(error).split())[:160]
        raise RecipeError(f"{path} is not YAML: {line}.", "Correct the file.") from None
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is not a mapping.", "A recipe has keys such as model and data.")
    return values


def _apply(values: dict[str, Any], override: str) -> None:
    """Set one value, e.g. "train.epochs=5"; the value is YAML."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise RecipeError(f"--set {override!r} has no value.", "Write --set key=value.")
    *groups, last = key.strip().split(".")
    target = values
    for group in groups:
        inner = target.setdefault(group, {})
        if inner is None:
            inner = target[group] = {}
        if not isinstance(inner, dict):
            raise RecipeError(f"--set {key}: {group} is a value, not a group.", "Check the key.")
        target = inner
    try:
        target[last] = yaml.load(text, _Loader)
    except _NOT_YAML:
        short = text if len(text) <= 60 else f"{text[:60]}..."
        raise RecipeError(f"--set {key}: {short!r} is not a value.", "Quote it.") from None


def _check(recipe: Recipe) -> None:
    """What no single value shows: names that must exist, values that contradict each other."""
    from opteq.data.catalogue import NAMED
    from opteq.models.registry import entry, options_of

    try:
        found = entry(recipe.model.name)
        if recipe.data.name not in NAMED:
            raise UnknownOptionError(
                f"There is no dataset {recipe.data.name!r}.", nearest(recipe.data.name, NAMED)
            )
    except OpteqError as error:
        raise RecipeError(f"The recipe {recipe.name}: {error.problem}", error.remedy) from None
    known = options_of(found.name)
    for option in recipe.model.options:
        if option not in known:
            raise RecipeError(
                f"The recipe {recipe.name}: {found.name} has no option {option!r}.",
                nearest(option, known),
            )
    schedule, train = recipe.train.schedule, recipe.train
    if schedule.name == "step" and not schedule.milestones and schedule.every is None:
        _refuse(recipe, "train.schedule=step has no milestones", "Give milestones or every.")
    if schedule.name != "step" and (schedule.milestones or schedule.every):
        _refuse(
            recipe,
            f"train.schedule has milestones but is {schedule.name!r}",
            "Give name: step, or leave them out.",
        )
    if schedule.warmup_epochs > train.epochs:
        _refuse(recipe, "warm-up is longer than the training", "Lower warmup_epochs.")
    if train.solve.final_tolerance and not train.solve.tolerance:
        _refuse(recipe, "train.solve.final_tolerance has no start", "Give tolerance too.")
    if train.optimiser.nesterov and not train.optimiser.momentum:
        _refuse(recipe, "nesterov needs momentum", "Give a momentum above 0.")


def _refuse(recipe: Recipe, problem: str, remedy: str) -> None:
    raise RecipeError(f"The recipe {recipe.name}: {problem}.", remedy)
