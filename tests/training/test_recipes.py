"""Recipes: all of them load and build, and what is wrong in one is named."""

import math

import pytest
import torch

from opteq.errors import OptionError, RecipeError, RenamedWarning
from opteq.models.registry import entry
from opteq.training.build import shaped_model
from opteq.training.recipe import OptimizerSettings, ScheduleSettings, SolveSettings
from opteq.training.recipe_files import load_recipe
from opteq.training.schedule import learning_rate, tolerance
from opteq.training.summaries import list_recipes, recipe_summaries

CLASSES = {"cifar100": 100, "imagenet100": 100, "imagenet": 1000, "cityscapes": 19, "pairs": 11}


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_loads_builds_and_says_what_it_is(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe_summaries()[name] == recipe.summary
    assert recipe.summary
    channels = entry(recipe.model.name).input_shape[0]
    with torch.device("meta"):
        model = shaped_model(recipe.model, CLASSES.get(recipe.data.name, 10), channels)
    assert model.count_parameters() > 0


def test_dumped_recipes_are_the_same(tmp_path):
    for name in ("geq_digits", "opteq_alpha08_hsic_sam", "mopteq_pgd", "opteq_cityscapes"):
        recipe = load_recipe(name)
        path = tmp_path / f"{name}.yaml"
        path.write_text(recipe.dump())
        assert load_recipe(path) == recipe


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.epoch=3", "'epochs'"),
        ("trian.epochs=3", "'train'"),
        ("train.optimizer.learning_rat=1", "'learning_rate'"),
        ("train.epochs=many", "train.epochs"),
        ("train.epochs=0", "greater than or equal to 1"),
        ("train.epochs=2.5", "train.epochs"),
        ("train.optimizer.learning_rate=-1", "greater than 0"),
        ("train.optimizer.learning_rate=nan", "finite"),
        ("train.optimizer.name=sdg", "'sgd' or 'adamw'"),
        ("model.name=geq_digit", "'geq_digits'"),
        ("model.options.gama=1", "'gamma'"),
        ("data.name=digit", "'digits'"),
        ("data.validation=1.5", "less than 1"),
        ("seed=-1", "seed"),
        ("train.schedule.name=step", "milestones"),
        ("train.schedule={name: poly, milestones: [3]}", "name: step"),
        ("train.schedule={name: cosine, milestones: [3, 2]}", "in order"),
        ("train.schedule.warmup_epochs=100", "warm-up"),
        ("train.solve.final_tolerance=1e-3", "tolerance"),
        ("train.batch_size=[1]", "train.batch_size"),
        ("train", "key=value"),
        ("seed.x=1", "not a group"),
    ],
)
def test_bad_settings_are_refused_by_name(override, words):
    changes = ["seed=1", override] if override == "seed.x=1" else [override]
    with pytest.raises(RecipeError) as caught:
        load_recipe("geq_digits", changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_short_training_warms_up_for_a_part_of_it():
    assert load_recipe("geq_digits").train.schedule.warmup_epochs == 1
    short = load_recipe("geq_digits", ["seed=3"], epochs=1).train
    assert (short.epochs, short.schedule.warmup_epochs) == (1, 0.2)
    assert load_recipe("geq_digits", epochs=2).train.schedule.warmup_epochs == 1
    with pytest.raises(RecipeError, match="warm-up"):
        load_recipe("geq_digits", ["train.epochs=1"])
    with pytest.raises(OptionError, match="epochs=0 is out of range"):
        load_recipe("geq_digits", epochs=0)


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(RecipeError, match="'geq_digits'"):
        load_recipe("geq_digit")
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(tmp_path / "none.yaml")
    for content in ("a: [", "- 1\n- 2", "\x00\x01"):
        path = tmp_path / "bad.yaml"
        path.write_text(content)
        with pytest.raises(RecipeError, match=r"bad\.yaml"):
            load_recipe(path)
    (tmp_path / "evil.yaml").write_text("model: !!python/object/apply:os.system [exit]")
    with pytest.raises(RecipeError, match="not YAML"):
        load_recipe(tmp_path / "evil.yaml")


def rates(settings, steps=100, per_epoch=10, **options):
    optimizer = OptimizerSettings(learning_rate=2.0)
    return [
        learning_rate(settings, optimizer, k, steps_per_epoch=per_epoch, total_steps=steps)
        for k in range(steps)
    ]


def test_learning_rates_follow_their_formulas():
    stepped = rates(ScheduleSettings(name="step", milestones=(3, 6), factor=0.1))
    assert stepped[29] == 2.0
    assert stepped[30] == pytest.approx(0.2)
    assert stepped[60] == pytest.approx(0.02)
    every = rates(ScheduleSettings(name="step", every=2, factor=0.7))
    assert every[45] == pytest.approx(2.0 * 0.7**2)
    cosine = rates(ScheduleSettings(name="cosine"))
    assert cosine[25] == pytest.approx(1 + math.cos(math.pi / 4))
    again = rates(ScheduleSettings(name="cosine", milestones=(6, 8), factor=0.5, warmup_epochs=1))
    assert again[10:60] == rates(ScheduleSettings(name="cosine", warmup_epochs=1), steps=60)[10:]
    assert [again[60], again[70]] == pytest.approx([1.0, 0.5])
    assert again[80] == pytest.approx(0.5)
    assert again[99] < 0.02
    poly = rates(ScheduleSettings(name="poly", power=0.9))
    assert poly[40] == pytest.approx(2 * 0.6**0.9)
    warm = rates(ScheduleSettings(name="constant", warmup_epochs=1))
    assert warm[:3] == pytest.approx([0.2, 0.4, 0.6])
    assert warm[10:] == [2.0] * 90


def test_tolerance_falls_geometrically():
    settings = SolveSettings(tolerance=1e-1, final_tolerance=1e-3)
    values = [tolerance(settings, k, 5) for k in range(5)]
    assert values == pytest.approx([1e-1, 10**-1.5, 1e-2, 10**-2.5, 1e-3])
    assert tolerance(SolveSettings(), 3, 5) is None


def test_numbers_without_a_point_are_numbers(tmp_path):
    """YAML 1.1 reads 1e-3 as text: in files, in nested options and with --set."""
    path = tmp_path / "mine.yaml"
    path.write_text(
        "model: {name: geq_digits, options: {solver: {name: anderson, tol: 1e-5}}}\n"
        "data: {name: digits}\n"
        "train: {optimizer: {learning_rate: 5E-3}}\n"
    )
    recipe = load_recipe(path, ["model.options.gamma=1e-2", "train.optimizer.weight_decay=2e-4"])
    assert recipe.model.options["solver"]["tol"] == 1e-5
    assert recipe.model.options["gamma"] == 1e-2
    assert recipe.train.optimizer.learning_rate == 5e-3
    assert recipe.train.optimizer.weight_decay == 2e-4
    # What is no number is left alone.
    assert load_recipe(path, ["model.options.gamma=learned"]).model.options["gamma"] == "learned"


def test_a_recipe_says_only_what_is_its_own(tmp_path):
    (tmp_path / "longer.yaml").write_text("extends: geq_digits\ntrain: {epochs: 40}\n")
    (tmp_path / "wider.yaml").write_text("extends: longer\nmodel: {options: {channels: 48}}\n")
    base, found = load_recipe("geq_digits"), load_recipe(tmp_path / "wider.yaml")
    assert (found.name, found.summary) == ("wider", "")
    assert found.train == base.train.model_copy(update={"epochs": 40})
    assert found.model.options == {**base.model.options, "channels": 48}
    assert (found.data, found.augment) == (base.data, base.augment)


@pytest.mark.parametrize(
    ("parent", "words"),
    [
        ("geq_digit", "extends 'geq_digit', and there is no such recipe.*'geq_digits'"),
        ("itself", "extend each other: itself -> itself"),
    ],
)
def test_a_parent_that_cannot_be_is_named(tmp_path, parent, words):
    path = tmp_path / "itself.yaml"
    path.write_text(f"extends: {parent}\n")
    with pytest.raises(RecipeError, match=words):
        load_recipe(path)


def test_old_names_of_keys_still_work_and_are_mentioned_once(tmp_path, monkeypatch):
    monkeypatch.setattr("opteq.training.recipe_files._TOLD", set())
    path = tmp_path / "old.yaml"
    path.write_text("extends: geq_digits\ntrain: {optimiser: {learning_rate: 0.5}}\n")
    with pytest.warns(RenamedWarning, match="train.optimizer"):
        found = load_recipe(path)
    assert found.train.optimizer == OptimizerSettings(
        name="adamw", learning_rate=0.5, weight_decay=0.01
    )
    again = load_recipe("geq_digits", ["train.optimiser.momentum=0.5"])  # and no second warning
    assert again.train.optimizer.momentum == 0.5
