"""Images from measurements with a trained energy: any operator, any noise level."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from opteq.context import eval_mode
from opteq.errors import DataError, NotConvergedWarning, OptionError, ShapeError, counted
from opteq.layer import Equilibrium
from opteq.models.network import Network
from opteq.models.restorer import LEVEL, Restorer, first_guess, reflected
from opteq.operators import Identity, LinearOperator, Mask
from opteq.operators.base import fits
from opteq.options import positive
from opteq.solve import Solution

# How much noise a prior is to expect for each unit of noise in measurements by an operator that
# loses something, and at least: what served best on photographs kept apart from tests.
_MORE, _LEAST = 1.0, 5 * LEVEL
# Noise makes pixels brighter than white, but never so bright.
_WHITE = 4.0
# An operator that loses much leaves directions in which the energy is nearly flat: there the
# residual must be so many times as small (0.14 dB for a blur), in as many times as many steps.
_CLOSER, _LONGER = 0.1, 7


@dataclass(frozen=True)
class Restored:
    """Images, and how they were found."""

    image: Tensor
    """The solution, cut off at 0 and 1."""
    solution: Solution
    objective: Tensor
    """G at the solution, one number for each image and channel."""
    layer: Equilibrium = field(repr=False)
    """The equilibrium that was solved."""
    certain: str = ""
    """What is known about the solution, if it converged; `opteq.restore` fills it in."""

    def __str__(self) -> str:
        count, height, width = len(self.image), *self.image.shape[-2:]
        words = f"{counted(count, 'image')} of {height}x{width}"
        if not count:
            return words
        bad = int((~self.solution.converged).sum())
        end = f"{bad} not converged" if bad else self.certain or "all converged"
        return f"{words}, {float(self.solution.steps.float().mean()):.0f} steps, {end}"


@torch.no_grad()
def restore_images(
    model: Restorer,
    y: Tensor,
    H: LinearOperator | None = None,
    *,
    noise: float = 25 * LEVEL,
    prior_noise: float | None = None,
    strength: float | None = None,
) -> Restored:
    """The images z of which y = Hz + noise was measured, H by default the model's own measurement;
    y has shape (batch, channels, height, width), and each channel is restored by itself.

    `prior_noise` is the noise that the prior is to expect, `strength` its weight: for the model's
    own measurement `noise` and 1; otherwise the noise is taken to be no less than 5 / 255, and the
    weight is the ratio of the variances.
    """
    _check(require_restorer(model), y, H, noise)
    own = H is None or (type(H) is Identity and type(model.measurement) is Identity)
    if prior_noise is None:
        prior_noise = noise if own else max(_LEAST, _MORE * noise)
    if strength is None:
        strength = 1.0 if own else (noise / positive("prior_noise", prior_noise)) ** 2
    positive("strength", strength, allow_zero=True)
    operator = model.measurement if H is None else H
    grey = y if _is_grey(y, operator) else y.reshape(-1, 1, *y.shape[2:])
    layer = model.at(prior_noise, operator, strength=strength, batch=len(grey))
    with eval_mode(model), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        if type(operator) is Identity:
            seen, cut = reflected(grey, model.border)
            solution = layer.solve(seen, seen)
            image = _tensor(solution)[cut]
        else:
            seen = grey
            own_solver = layer.solver
            layer.solver = replace(
                own_solver,
                tol=_CLOSER * own_solver.tol,
                max_steps=_LONGER * own_solver.max_steps,
            )
            solution = layer.solve(grey, first_guess(operator, grey))
            image = _tensor(solution)
    channels = 1 if grey is y else y.shape[1]
    assert layer.problem is not None
    return Restored(
        image.clamp(0, 1).reshape(len(y), channels, *image.shape[2:]),
        solution,
        layer.problem.objective(_tensor(solution), seen),
        layer,
    )


def _is_grey(y: Tensor, H: LinearOperator) -> bool:
    """Whether the measurements are of one channel."""
    shape = tuple(y.shape[1:])
    return fits(H.domain_shape, shape) and H.domain_shape(shape)[0] == 1


def _tensor(solution: Solution) -> Tensor:
    assert isinstance(solution.state, Tensor)
    return solution.state


def require_restorer(model: Network) -> Restorer:
    """A model that restores images, or an error that says where to get one."""
    if not isinstance(model, Restorer):
        raise OptionError(
            f"A {type(model).__name__} does not restore images.",
            "Train one that does: opteq train denoise_bsd_tiny.",
        )
    return model


def _check(model: Restorer, y: Tensor, H: LinearOperator | None, noise: float) -> None:
    if not isinstance(y, Tensor) or y.ndim != 4:
        shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ShapeError(
            f"Measurements have shape (batch, channels, height, width), got {shape}.",
            "Add the batch axis with y[None].",
        )
    if not bool(y.isfinite().all()):
        raise DataError(
            "The measurements have pixels that are not finite numbers.",
            "Set them to 0 and say that they are missing: H=Mask(y.isfinite()).",
        )
    if H is not None and not isinstance(H, LinearOperator):
        raise OptionError(
            f"H is a {type(H).__name__}, not an operator.",
            "Wrap an object with A and A_adjoint: opteq.operators.Physics(H, image_shape).",
        )
    brightest = float(y.abs().max()) if y.numel() else 0.0
    if isinstance(model.measurement if H is None else H, Identity | Mask) and brightest > _WHITE:
        raise DataError(
            f"The measurements go up to {brightest:.3g}, and white is 1.",
            "Give pixels in [0, 1]: y / 255 for bytes.",
        )
    positive("noise", noise, allow_zero=True)
    most = float(model.scales.levels[-1])
    if noise > most * (1 + 1e-6):
        raise OptionError(
            f"noise={noise:.3g} is more than the model has learnt to remove, {most:.3g}.",
            "Noise is the standard deviation of a pixel, in units of white: 25 / 255, say.",
        )


def estimated_noise(y: Tensor, seen: Tensor | None = None) -> Tensor:
    """The standard deviation of each image's noise, from the median size of its finest diagonal
    differences (Donoho & Johnstone 1994), of those between pixels that were `seen` (height, width);
    an image with fine texture looks noisier than it is."""
    fine = _diagonal(y)
    if seen is not None:
        fine = fine[..., torch.stack(_quarters(seen)).all(0)]
    fine = fine.flatten(1)
    if not fine.shape[1]:
        raise DataError(
            "The noise cannot be estimated where no 2x2 pixels were seen.",
            "Say how much noise there is: --noise, or noise=.",
        )
    return fine.abs().median(1).values / 0.6745


def _diagonal(y: Tensor) -> Tensor:
    here, right, below, across = _quarters(y)
    return (here - right - below + across) / 2


def _quarters(y: Tensor) -> tuple[Tensor, ...]:
    """The four pixels of each 2x2 block."""
    height, width = (side - side % 2 for side in y.shape[-2:])
    y = y[..., :height, :width]
    return y[..., ::2, ::2], y[..., ::2, 1::2], y[..., 1::2, ::2], y[..., 1::2, 1::2]
