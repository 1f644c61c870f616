"""What if: an image that is changed, by a model that is solved otherwise."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from opteq.attacks import Attack, projected_gradient
from opteq.choices import solver_from
from opteq.context import eval_mode
from opteq.errors import DataError, NotConvergedWarning, OptionError
from opteq.gradient import Unrolled
from opteq.kernels.gaussian import GaussianKernel
from opteq.layer import equilibria
from opteq.models.network import Network
from opteq.options import positive, whole


@dataclass(frozen=True)
class Damage:
    """What is done to an image, in this order. Pixels are in [0, 1]."""

    blur: float = 0.0
    """The width of a Gaussian blur, in pixels."""
    noise: float = 0.0
    """The standard deviation of Gaussian noise."""
    hidden: float = 0.0
    """The side of a grey square in the middle, as a share of the image's."""
    attack: float = 0.0
    """How far every pixel may move in one step against the model's first choice."""
    seed: int = 0


@dataclass(frozen=True)
class Handling:
    """How a trained model is solved, other than it was trained."""

    gamma: float = 1.0
    """gamma of every Gaussian kernel is multiplied by this."""
    solver: str | None = None
    tolerance: float | None = None
    steps: int | None = None
    """Stop after so many plain steps instead of solving."""


def damaged(model: Network, x: Tensor, damage: Damage) -> Tensor:
    """An image (channels, height, width) after its damage; only an attack looks at the model."""
    x = x.to(model.pixel_mean)
    if damage.blur > 0:
        x = _blurred(x, damage.blur)
    if damage.noise > 0:
        generator = torch.Generator().manual_seed(damage.seed)
        noise = torch.randn(x.shape, generator=generator).to(x)
        x = (x + damage.noise * noise).clamp(0, 1)
    if damage.hidden > 0:
        x = _hidden(x, damage.hidden)
    if damage.attack > 0:
        x = _attacked(model, x, damage.attack)
    return x


def drawn(model: Network, canvas: np.ndarray) -> Tensor:
    """A drawing, dark on light, as an image for the model: light on dark where its images are so.
    The strokes are brought to the middle and to the size that objects have there."""
    strokes = 1 - torch.from_numpy(np.ascontiguousarray(canvas)).float().mean(2) / 255
    inked = (strokes > 0.1).nonzero()
    if not len(inked):
        raise DataError("Nothing is drawn yet.", "Draw on the canvas.")
    (top, left), (bottom, right) = inked.amin(0).tolist(), inked.amax(0).tolist()
    side = round(1.15 * (1 + max(bottom - top, right - left)))
    board = strokes.new_zeros((side, side))
    y, x = (side - (bottom - top + 1)) // 2, (side - (right - left + 1)) // 2
    board[y : y + bottom - top + 1, x : x + right - left + 1] = strokes[
        top : bottom + 1, left : right + 1
    ]
    channels, height, width = model.image_shape
    small = functional.interpolate(
        board[None, None], size=(height, width), mode="bilinear", antialias=True
    )[0].clamp(0, 1)
    image = small if float(model.pixel_mean.mean()) < 0.5 else 1 - small
    return image.expand(channels, -1, -1).to(model.pixel_mean)


def handled(model: Network, handling: Handling) -> Network:
    """A copy of a model that is solved otherwise; the model itself stays as it is."""
    model = copy.deepcopy(model)
    positive("gamma", handling.gamma)
    if handling.gamma != 1:
        for kernel in model.modules():
            if isinstance(kernel, GaussianKernel):
                kernel.scale_gamma(handling.gamma)
    for layer in equilibria(model):
        if handling.solver is not None:
            own = layer.solver
            chosen = solver_from(handling.solver)
            layer.solver = replace(chosen, tol=own.tol, max_steps=max(own.max_steps, 200))
        if handling.tolerance is not None:
            layer.solver = replace(layer.solver, tol=positive("tolerance", handling.tolerance))
        if handling.steps is not None:
            rule = Unrolled(steps=whole("steps", handling.steps, least=1))
            own = rule.solver_or(None, layer.solver)
            layer.gradient, layer.solver = rule, replace(own, on_failure="ignore")
        refusal = layer.gradient.refusal(layer.solver)
        if refusal is not None:
            raise refusal
    return model


def _blurred(x: Tensor, width: float) -> Tensor:
    reach = min(max(1, round(3 * width)), min(x.shape[1:]) - 1)
    offsets = torch.arange(-reach, reach + 1).to(x)
    line = torch.exp(-0.5 * (offsets / width).square())
    line = line / line.sum()
    padded = functional.pad(x[:, None], (reach,) * 4, mode="reflect")
    return functional.conv2d(
        functional.conv2d(padded, line[None, None, :, None]), line[None, None, None]
    )[:, 0]


def _hidden(x: Tensor, share: float) -> Tensor:
    x = x.clone()
    height, width = x.shape[1:]
    tall, wide = (max(1, round(share * n)) for n in (height, width))
    top, left = (height - tall) // 2, (width - wide) // 2
    x[:, top : top + tall, left : left + wide] = 0.5
    return x


def _attacked(model: Network, x: Tensor, epsilon: float) -> Tensor:
    attack = Attack(epsilon, steps=1, step_size=epsilon, start="image")
    with warnings.catch_warnings(), eval_mode(model):
        warnings.simplefilter("ignore", NotConvergedWarning)
        with torch.no_grad():
            logits = model(x[None])
        if logits.ndim != 2:
            raise OptionError("Attacks are made on classifiers.", "Leave the attack out.")
        return projected_gradient(model, x[None], logits.argmax(1), attack)[0].detach()
