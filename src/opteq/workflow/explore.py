"""A page in the browser on which a trained model can be tried: change the image, change how it is
solved, and see what that does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from opteq.data.catalogue import load_data
from opteq.data.settings import DataSettings
from opteq.data.splits import sample
from opteq.errors import DataError, OptionError
from opteq.models.network import Network
from opteq.report.explorer_page import Explored, serve
from opteq.training.bundled import bundled
from opteq.training.folder import RunFolder
from opteq.training.load import load
from opteq.training.recipe_files import load_recipe
from opteq.workflow.train import Run

# How many test images there are to pick from.
_IMAGES = 24


def explore(
    run: str | Path | Run,
    other: str | Path | Run | None = None,
    *,
    data_dir: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    block: bool = True,
) -> Any:
    """Open a page on which a run, or two side by side, can be tried; `opteq.list_pretrained()` can
    be tried by name. The page is served to this machine alone unless `host` says otherwise, and
    nothing leaves the machine. With `block` off, gradio's page is returned; its `close()` ends it.
    """
    explored = gather([run] if other is None else [run, other], data_dir)
    return serve(explored, host=host, port=port, browser=browser, block=block)


def gather(runs: Sequence[str | Path | Run], data_dir: str | Path | None = None) -> Explored:
    """Load what the page shows. Two runs must take images of one shape."""
    paths = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    loaded = [_loaded(path) for path in paths]
    models = {name: model for name, (model, _) in zip(names, loaded, strict=True)}
    if len(models) < len(paths):
        raise OptionError(f"{names[0]} is given twice.", "Give two different runs, or one.")
    first, settings = loaded[0]
    for name, model in models.items():
        if model.image_shape != first.image_shape:
            raise OptionError(
                f"{names[0]} takes images of shape {_spelt(first)}, {name} of {_spelt(model)}.",
                "Compare models that take the same images.",
            )
    none = first.pixel_mean.new_zeros((0, *first.image_shape))
    if settings is None:
        return Explored(models, none, [], f"{names[0]} does not say which data it was trained on.")
    try:
        data = load_data(settings, None if data_dir is None else Path(data_dir))
        images, labels = sample(data.test, min(_IMAGES, len(data.test)))
    except DataError as error:
        return Explored(models, none, [], str(error))
    shown = [data.classes[int(label)] for label in labels]
    return Explored(models, images.to(first.pixel_mean) / 255, shown)


def _loaded(path: Path) -> tuple[Network, DataSettings | None]:
    """A classifier, and the data it was trained on; a folder of `opteq.save` does not say."""
    model, folder, data = load(path), RunFolder(path), None
    if folder.has_recipe:
        data = folder.recipe.data
    elif not path.exists() and bundled(str(path)):
        data = load_recipe(str(path)).data
    if not model.image_shape or not model.class_names:
        raise OptionError(
            f"{path} does not know its classes or the shape of its images.",
            "Train it with opteq train.",
        )
    with torch.no_grad():
        logits = model.eval()(model.pixel_mean.new_zeros((1, *model.image_shape)))
    if logits.ndim != 2:
        raise OptionError(
            f"{path} does not give a class per image.",
            "Look at its answers with opteq predict or opteq restore.",
        )
    return model, data


def _spelt(model: Network) -> str:
    return "x".join(str(n) for n in model.image_shape)
