"""Two steps of every recipe: its model made small, its settings as they are, on random images."""

import pytest
import torch
from lightning_fabric import Fabric
from reduced import reduced

from opteq.data.fake import fake_data
from opteq.train.build import _tuples, task_of
from opteq.train.loop import Trainer
from opteq.train.recipe import ModelSettings, load_recipe
from opteq.train.summaries import list_recipes


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("name", list_recipes())
def test_two_steps(name):
    recipe = load_recipe(
        name, ["train.batch_size=4", "train.steps=2", "train.precision=32-true", "data.name=fake"]
    )
    own = {key: _tuples(value) for key, value in recipe.model.options.items()}
    small = reduced(recipe.model.name, **own)
    assert recipe.model.options.keys() <= small.options.keys()
    model = ModelSettings(name=recipe.model.name, options=small.options)
    recipe = recipe.model_copy(update={"model": model})
    segmentation = task_of(recipe.model) == "segmentation"
    data = fake_data(small.shape, 10, segmentation=segmentation, count=8)
    trainer = Trainer(recipe, data, Fabric(accelerator="cpu", devices=1))
    before = {k: v.clone() for k, v in trainer.network.state_dict().items()}
    outcome = trainer.train()
    assert outcome.finished
    assert trainer.step == 2
    record = outcome.records[-1]
    assert record["train"]["loss"] == record["train"]["loss"] < 100
    assert 0 <= record["test"]["accuracy"] <= 1
    moved = [k for k, v in trainer.network.named_parameters() if not torch.equal(v, before[k])]
    assert len(moved) > 0.9 * len(list(trainer.network.parameters()))
