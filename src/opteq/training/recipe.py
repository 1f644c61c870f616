"""Recipes: everything a run depends on, as settings."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator

from opteq.data.settings import AugmentSettings, DataSettings, MeasureSettings
from opteq.settings import Settings

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ModelSettings(Settings):
    """A registered model and the options that differ from its entry."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class OptimizerSettings(Settings):
    """How weights are updated."""

    name: Literal["sgd", "adamw"] = "sgd"
    learning_rate: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 0.0


class ScheduleSettings(Settings):
    """How the learning rate changes: step (times `factor` at `milestones`, or every `every`
    epochs), cosine to zero, or poly, (1 - progress)^power. All may warm up linearly. With
    `milestones` cosine reaches zero at each of them, and starts again at `factor` times its last
    start (Loshchilov & Hutter 2017)."""

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
    """Cross-entropy, and what is added to it; for restoration the error of the image."""

    error: Literal["psnr", "squared", "absolute"] = "psnr"
    """For restoration: minus the PSNR of each image, or the squared or absolute error of each
    pixel."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    margin: NotNegative = 0.0
    """Subtracted from the logit of the true class before the cross-entropy, so that it has to lead
    by that much: for certified models. Where the head's rows have length 1, a radius r is a lead
    of about sqrt(2) r."""
    temperature: Positive = 1.0
    """What logits are divided by in the cross-entropy: for models whose logits cannot grow."""
    jacobian: NotNegative = 0.0
    """Weight of an estimate of |J|_F^2 at the equilibria."""
    regularizer: Any = None
    """A feature regularizer by name, or a mapping with its name and options."""
    regularizer_weight: NotNegative = 0.01
    coupling: NotNegative = 0.0
    """Weight of MOptEq's heritage and diversity as a loss, the ablation of its figure 3c."""
    coupling_diversity: NotNegative = 0.01


class AdversarialSettings(Settings):
    """Training on images that projected gradient ascent has made harder."""

    steps: Annotated[int, Field(ge=1, le=1000)] = 3
    epsilon: Positive = 8 / 255
    step_size: Positive | None = None
    """By default 2.5 epsilon / steps."""


class SolveSettings(Settings):
    """How exactly equilibria are solved; by default as in the model."""

    tolerance: Positive | None = None
    final_tolerance: Positive | None = None
    """Reached at the end, falling geometrically from `tolerance`."""
    evaluation_tolerance: Positive | None = 1e-4


class TrainSettings(Settings):
    """The training itself."""

    init_from: str | None = None
    """A run whose weights to start from: all that fit, so classes may differ."""
    epochs: Annotated[int, Field(ge=1)] = 10
    steps: Annotated[int, Field(ge=1)] | None = None
    """Stop after this many steps, whatever the epoch."""
    batch_size: Annotated[int, Field(ge=1)] = 128
    """Over all devices together."""
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    loss: LossSettings = LossSettings()
    clip: Positive | None = None
    """Largest norm of the gradient."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of an average of the weights, which is then evaluated in their place."""
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
    """What the paper leaves open, and what was chosen here."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    model: ModelSettings
    data: DataSettings
    augment: AugmentSettings = AugmentSettings()
    measure: MeasureSettings = MeasureSettings()
    train: TrainSettings = TrainSettings()

    @field_validator("name")
    @classmethod
    def _as_folder(cls, value: str) -> str:
        """Runs are put into a folder of this name."""
        if not re.fullmatch(r"[\w][\w .+,=@()-]{0,119}", value) or value.endswith((" ", ".")):
            raise ValueError(
                "a name has up to 120 letters, digits and - _ + , = @ ( ), and begins with a "
                "letter or digit"
            )
        return value

    @field_validator("chosen", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    def dump(self) -> str:
        """The recipe with every default spelt out, as YAML."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, width=100)
