"""Recipes build their models at full size, and run two steps on random images of the shape and the
classes of their data: settings as they are, models with the same parts and fewer channels. Those of
experiments do so in their rehearsal; here is one of each architecture.
"""

import pytest
import torch
from lightning_fabric import Fabric

from opteq.data.fake import fake_like
from opteq.models.registry import entry
from opteq.training.build import narrowed_model, shaped_model, task_of
from opteq.training.loop import Trainer
from opteq.training.recipe_files import load_recipe
from opteq.training.summaries import list_recipes


def _names():
    seen = set()
    for name in list_recipes():
        builder = entry(load_recipe(name).model.name).builder
        if builder not in seen:
            seen.add(builder)
            yield name


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("name", list(_names()))
def test_two_steps(name):
    recipe = load_recipe(name, ["train.batch_size=2", "train.steps=2", "train.precision=32-true"])
    data = fake_like(recipe.data, task_of(recipe.model))
    with torch.device("meta"):
        full = shaped_model(recipe.model, len(data.classes), data.shape[0])
    recipe = recipe.model_copy(update={"model": narrowed_model(recipe.model)})
    trainer = Trainer(recipe, data, Fabric(accelerator="cpu", devices=1))
    assert trainer.state.network.state_dict().keys() == full.state_dict().keys()
    before = {k: v.clone() for k, v in trainer.state.network.state_dict().items()}
    outcome = trainer.train()
    assert outcome.finished
    assert trainer.state.step == 2
    record = outcome.records[-1]
    assert record["train"]["loss"] == record["train"]["loss"] < 100
    test = record["test"]
    assert 0 < test["psnr"] < 100 if data.task == "restoration" else 0 <= test["accuracy"] <= 1
    weights = dict(trainer.state.network.named_parameters())
    moved = [k for k, v in weights.items() if not torch.equal(v, before[k])]
    assert len(moved) > 0.9 * len(weights)
