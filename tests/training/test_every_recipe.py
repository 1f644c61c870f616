"""Every recipe builds its model at full size, and runs two steps on random images of the shape and
the classes of its data: its settings as they are, its model with the same parts and fewer channels.
"""

import pytest
import torch
from lightning_fabric import Fabric
from reduced import narrowed

from opteq.data.fake import fake_data
from opteq.training.build import _tuples, shaped_model, task_of
from opteq.training.loop import Trainer
from opteq.training.recipe import ModelSettings, Recipe
from opteq.training.recipe_files import load_recipe
from opteq.training.summaries import list_recipes

IMAGES = {
    ("digits", "standard"): ((1, 8, 8), 10),
    ("fashion-mnist", "standard"): ((1, 28, 28), 10),
    ("cifar10", "standard"): ((3, 32, 32), 10),
    ("cifar10", "five_known"): ((3, 32, 32), 5),
    ("cifar100", "standard"): ((3, 32, 32), 100),
    ("cifar100", "super_classes"): ((3, 32, 32), 20),
    ("imagenette", "standard"): (3, 10),
    ("imagenet100", "standard"): (3, 100),
    ("imagenet", "standard"): (3, 1000),
    ("cityscapes", "standard"): (3, 19),
    ("pairs", "standard"): (3, 11),
}
"""Shape and classes of the data; only channels where the recipe chooses the size."""


def images_of(recipe: Recipe) -> tuple[tuple[int, int, int], int]:
    shape, classes = IMAGES[recipe.data.name, recipe.data.split]
    if isinstance(shape, int):
        size = recipe.data.pair_size()
        assert size is not None
        return (shape, *size), classes
    assert recipe.data.image_size is None
    return shape, classes


@pytest.mark.filterwarnings("ignore::opteq.errors.NotConvergedWarning")
@pytest.mark.parametrize("name", list_recipes())
def test_two_steps(name):
    shape, classes = images_of(load_recipe(name))
    recipe = load_recipe(
        name, ["train.batch_size=2", "train.steps=2", "train.precision=32-true", "data.name=fake"]
    )
    with torch.device("meta"):
        full = shaped_model(recipe.model, classes, shape[0])
    own = {key: _tuples(value) for key, value in recipe.model.options.items()}
    model = ModelSettings(name=recipe.model.name, options=narrowed(recipe.model.name, **own))
    recipe = recipe.model_copy(update={"model": model})
    segmentation = task_of(recipe.model) == "segmentation"
    data = fake_data(shape, classes, segmentation=segmentation, count=4)
    trainer = Trainer(recipe, data, Fabric(accelerator="cpu", devices=1))
    assert trainer.state.network.state_dict().keys() == full.state_dict().keys()
    before = {k: v.clone() for k, v in trainer.state.network.state_dict().items()}
    outcome = trainer.train()
    assert outcome.finished
    assert trainer.state.step == 2
    record = outcome.records[-1]
    assert record["train"]["loss"] == record["train"]["loss"] < 100
    assert 0 <= record["test"]["accuracy"] <= 1
    weights = dict(trainer.state.network.named_parameters())
    moved = [k for k, v in weights.items() if not torch.equal(v, before[k])]
    assert len(moved) > 0.9 * len(weights)
