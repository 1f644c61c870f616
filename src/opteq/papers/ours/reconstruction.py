"""Images from measurements: an energy that was learned once, minimised for any operator."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from opteq.data.dataset import ImageSet
from opteq.data.settings import MeasureSettings
from opteq.errors import NotConvergedWarning
from opteq.evaluation.evaluate import on_test_images
from opteq.evaluation.inverse_problems import (
    INVERSE_PROBLEMS,
    Choice,
    InverseProblem,
    choose,
    outcome,
)
from opteq.exhibits import Curves, Picture, Series
from opteq.gradient import Unrolled
from opteq.layer import Equilibrium
from opteq.models.restorer import LEVEL, Restorer, gaussian_blur
from opteq.operators import Identity
from opteq.papers.engine.experiment import PARAMETERS, Column, Experiment, Row, Tiny, Trained
from opteq.papers.engine.results import Results, Values
from opteq.papers.engine.verdicts import Statement, above
from opteq.theory import certificate

_LEVELS = (5, 15, 25)
# Test images that are blurred, masked and so on, and parts of training images on which the use of a
# prior for that is chosen.
_TESTED, _CHOSEN_ON, _CHOSEN_SIDE = 4, 3, 96


def _measure(run: Trained) -> Values:
    model = cast(Restorer, run.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        if type(model.measurement) is Identity:
            return _denoiser(model, run)
        return _deblurrer(model, run)


def _denoiser(model: Restorer, run: Trained) -> Values:
    """Noise of three levels; then other measurements with the same weights."""
    values: Values = {}
    for level in _LEVELS:
        measure = MeasureSettings(test_noise=level)
        figures = on_test_images(model, run.data, run.limit, measure).figures()
        values[f"psnr_{level}"] = figures["psnr"]
        values[f"ssim_{level}"] = figures["ssim"]
        values[f"steps_{level}"] = figures["steps"]
        values[f"unconverged_{level}"] = figures["unconverged"]
    layer = model.at(25 * LEVEL)
    found = certificate(layer)
    values["unique"] = float(bool(found.unique))
    values["moves"] = float(found.lipschitz)
    solver = _solving(model.layer)
    model.layer.gradient, model.layer.solver = solver.gradient, solver.solver
    return values | _other_measurements(model, run)


def _other_measurements(model: Restorer, run: Trained) -> Values:
    values: Values = {}
    images = _images(run.data.test, min(_TESTED, run.limit or _TESTED))
    others = _parts(run.data.train)
    choice = None
    for problem in INVERSE_PROBLEMS:
        if choice is None or not run.rehearsed:
            choice = choose(model, problem, others)
        got = outcome(model, problem, images, choice)
        values[f"psnr_{problem.key}"] = got.psnr
        values[f"steps_{problem.key}"] = got.steps
        values[f"unconverged_{problem.key}"] = 1 - got.converged
    return values


def _solving(layer: Equilibrium) -> Equilibrium:
    """Weights that were trained with a few steps, solved all the same: an energy is an energy."""
    from opteq.models.registry import create_model

    return cast(Restorer, create_model("restorer_tiny")).layer if _is_unrolled(layer) else layer


def _is_unrolled(layer: Equilibrium) -> bool:
    return isinstance(layer.gradient, Unrolled)


def _deblurrer(model: Restorer, run: Trained) -> Values:
    """The blur it was trained for, a wider one, more noise, and three times the steps."""
    images = _images(run.data.test, min(_TESTED, run.limit or _TESTED))
    trained = InverseProblem("", "", lambda h, w: gaussian_blur(1.6))
    usual = Choice(trained.noise, 1.0)

    def score(problem: InverseProblem, choice: Choice = usual) -> float:
        return outcome(model, problem, images, choice).psnr

    values: Values = {
        "psnr_trained": score(trained),
        "psnr_wider": score(replace(trained, operator=lambda h, w: gaussian_blur(2.4))),
    }
    for times in (3, 5):
        noisy = replace(trained, noise=times * trained.noise)
        values[f"psnr_noise_{times}"] = score(noisy, Choice(noisy.noise, 1.0))
    if isinstance(model.layer.gradient, Unrolled):
        own = model.layer.gradient
        model.layer.gradient = replace(own, steps=3 * own.steps)
        values["psnr_longer"] = score(trained)
        model.layer.gradient = own
    return values


def _images(chosen: ImageSet, count: int) -> list[Tensor]:
    return [chosen.read(i)[0].float() / 255 for i in range(min(count, len(chosen)))]


def _parts(chosen: ImageSet) -> Tensor:
    """The centres of some training images."""
    found = []
    for image in _images(chosen, _CHOSEN_ON):
        side = min(_CHOSEN_SIDE, *image.shape[1:])
        top, left = ((n - side) // 2 for n in image.shape[1:])
        found.append(image[:, top : top + side, left : left + side])
    return torch.stack(found)


def _pictures(results: Results) -> dict[str, Picture]:
    names = {key: title for key, title in _DENOISERS.items() if results.has(title, "psnr_25")}
    series = {
        title: Series(list(_LEVELS), [results.mean(title, f"psnr_{n}") for n in _LEVELS])
        for title in names.values()
    }
    keys = [p.key for p in INVERSE_PROBLEMS]
    titles = [p.title for p in INVERSE_PROBLEMS]
    other = {
        title: Series(
            list(range(1, len(keys) + 1)), [results.mean(title, f"psnr_{key}") for key in keys]
        )
        for title in names.values()
    }
    return {
        "noise": Curves("Noise removed from BSD68", "noise, of 255", "PSNR, dB", series),
        "operators": Curves(
            "The same weights, other measurements", "", "PSNR, dB", other, names=titles
        ),
    }


_DENOISERS = {
    "total_variation": "total variation",
    "once": "one gradient step, trained as such",
    "gaussian": "Gaussian kernel, one width",
    "gaussians": "Gaussian kernel, five widths",
    "convex": "convex spline",
    "weakly_convex": "weakly convex spline",
}
_SOLVED, _TEN, _THIRTY = "solved", "10 steps", "30 steps"


def _beats(better: str, worse: str, key: str, text: str) -> Statement:
    return Statement(text, above(better, worse, key, unit=" dB"))


OURS_RECONSTRUCTION = Experiment(
    rows=tuple(Row(title, Tiny(family)) for family, title in _DENOISERS.items()),
    data="bsd",
    reported_as=None,
    measure=_measure,
    columns=(
        *(Column(f"psnr_{n}", f"noise {n}") for n in reversed(_LEVELS)),
        Column("ssim_25", "SSIM at 25", 3),
        *(Column(f"psnr_{p.key}", p.title) for p in INVERSE_PROBLEMS),
        Column("steps_25", "steps at 25", 0),
        Column("unconverged_25", "not converged %", 1, percent=True),
        Column("moves", "moves by at most", 1),
        PARAMETERS,
    ),
    claims=(
        *(
            _beats(
                _DENOISERS["weakly_convex"],
                _DENOISERS["total_variation"],
                f"psnr_{p.key}",
                f"{p.title}: the learned energy beats total variation, without retraining",
            )
            for p in INVERSE_PROBLEMS
        ),
        *(
            _beats(
                _DENOISERS["weakly_convex"],
                _DENOISERS["once"],
                f"psnr_{p.key}",
                f"{p.title}: solving in training beats one step in training",
            )
            for p in INVERSE_PROBLEMS
        ),
        _beats(
            _DENOISERS["gaussians"],
            _DENOISERS["gaussian"],
            "psnr_25",
            "Gaussian kernels at five widths beat one",
        ),
        _beats(
            _DENOISERS["weakly_convex"],
            _DENOISERS["convex"],
            "psnr_25",
            "weakly convex beats convex",
        ),
    ),
    pictures=_pictures,
    note=(
        "PSNR in dB. Noise 25, 15 and 5 of 255: all of BSD68; the other measurements: its first 4 "
        "images, noise 2, with the weights that were trained on noise alone. "
        "The noise that the prior expects there, and its weight, are chosen on parts of three "
        "training images. 'Moves by at most' is the certified factor by which a change of the "
        "measurements can move the denoised image. By their authors' files on all of BSD68 at 25, "
        "15, 5: WCRR-NN 28.68, 31.21, 37.65 (13,763 parameters), CRR-NN 28.10, 30.55, 36.96; "
        "BM3D 28.57 and DnCNN 29.23 at 25."
    ),
)

OURS_DEBLURRING = Experiment(
    rows=(
        Row(_SOLVED, Tiny("deblur")),
        Row(_TEN, Tiny("deblur_10")),
        Row(_THIRTY, Tiny("deblur_30")),
    ),
    data="bsd",
    reported_as=None,
    measure=_measure,
    columns=(
        Column("psnr_trained", "as trained"),
        Column("psnr_wider", "blur 2.4"),
        Column("psnr_noise_3", "noise x3"),
        Column("psnr_noise_5", "noise x5"),
        Column("psnr_longer", "3x the steps"),
        PARAMETERS,
    ),
    claims=(
        *(_beats(_SOLVED, one, "psnr_trained", f"solved beats {one}") for one in (_TEN, _THIRTY)),
        *(_beats(_SOLVED, _TEN, f"psnr_noise_{n}", f"at {n} times the noise too") for n in (3, 5)),
    ),
    note=(
        "PSNR in dB on the first 4 images of BSD68. All rows were trained for a Gaussian blur of "
        "1.6 and noise 2 of 255, with equal parameters: solved, or with that many gradient steps "
        "in training and test."
    ),
)

RECONSTRUCTION_EXPERIMENTS = {
    "ours-reconstruction": OURS_RECONSTRUCTION,
    "ours-deblurring": OURS_DEBLURRING,
}
