"""Every recipe builds its model at full size, and runs two steps on random images of the shape and
the classes of its data: its settings as they are, its model with the same parts and fewer channels.
"""

import pytest
import torch
from lightning_fabric import Fabric

from opteq.data.fake import fake_like
from opteq.training.build import narrowed_model, shaped_model, task_of
from opteq.training.loop import Trainer
from opteq.training.recipe_files import load_recipe
from opteq.training.summaries import list_recipes


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("name", list_recipes())
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
