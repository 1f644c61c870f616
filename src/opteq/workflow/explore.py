"""A page in the browser on which a trained model can be tried: change the image, change how it is
solved, and see what that does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from opteq.data.splits import sample
from opteq.errors import DataError, OptionError
from opteq.models.network import Network
from opteq.models.restorer import Restorer
from opteq.models.seeded import HOW_MARKED, Seeded
from opteq.report.explorer_page import Explored, serve
from opteq.training.folder import RunFolder
from opteq.training.load import load
from opteq.workflow.train import Run

# How many test images there are to pick from.
_IMAGES = 24


def explore(
    run: str | Path | Run,
    other: str | Path | Run | None = None,
    *,
    data_dir: str | Path | None = None,
    path: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    block: bool = True,
) -> Any:
    """Open a page on which a run, or two side by side, can be tried; `opteq.list_pretrained()` can
    be tried by name. `path` is where the images of the first have moved to. The page is served to
    this machine alone unless `host` says otherwise, and nothing leaves the machine. With `block`
    off, gradio's page is returned; its `close()` ends it.
    """
    explored = gather([run] if other is None else [run, other], data_dir, path)
    return serve(explored, host=host, port=port, browser=browser, block=block)


def gather(
    runs: Sequence[str | Path | Run],
    data_dir: str | Path | None = None,
    path: str | Path | None = None,
) -> Explored:
    """Load what the page shows. Two runs must take images of one shape."""
    homes = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    names = [home.name for home in homes]
    if len(set(names)) < len(names):
        names = [str(home) for home in homes]
    models = {name: _loaded(home) for name, home in zip(names, homes, strict=True)}
    if len(models) < len(homes):
        raise OptionError(f"{names[0]} is given twice.", "Give two different runs, or one.")
    first, folder = models[names[0]], RunFolder(homes[0])
    for name, model in models.items():
        if model.image_shape != first.image_shape:
            raise OptionError(
                f"{names[0]} takes images of shape {_spelt(first)}, {name} of {_spelt(model)}.",
                "Compare models that take the same images.",
            )
    none = first.pixel_mean.new_zeros((0, *first.image_shape))
    if not folder.has_recipe:
        return Explored(models, none, [], f"{names[0]} does not say which data it was trained on.")
    try:
        places = (None if place is None else Path(place) for place in (data_dir, path))
        data = folder.data(*places)
        images, labels = sample(data.test, min(_IMAGES, len(data.test)))
    except DataError as error:
        return Explored(models, none, [], str(error))
    shown = [data.classes[int(label)] for label in labels]
    return Explored(models, images.to(first.pixel_mean) / 255, shown)


def _loaded(path: Path) -> Network:
    """A classifier."""
    model = load(path)
    if isinstance(model, Restorer):
        raise _refusal(path, "restores images", f"Try it on files: opteq restore {path} IMAGE.")
    if isinstance(model, Seeded):
        raise _refusal(path, "needs marked pixels", HOW_MARKED)
    with torch.no_grad():
        logits = model.eval()(model.pixel_mean.new_zeros((1, *model.image_shape)))
    if logits.ndim != 2:
        remedy = f"Try it on files: opteq predict {path} IMAGE."
        raise _refusal(path, "gives a class for each pixel", remedy)
    return model


def _refusal(path: Path, what: str, remedy: str) -> OptionError:
    return OptionError(f"opteq explore is for classifiers of images; {path} {what}.", remedy)


def _spelt(model: Network) -> str:
    return "x".join(str(n) for n in model.image_shape)
