"""Images from measurements: a learned energy, minimised."""

from __future__ import annotations

import copy
import math
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.equilibrium.proximal import Proximal
from opteq.errors import DtypeError, OptionError, ShapeError
from opteq.gradient import GradientRule, Implicit
from opteq.kernels import Measurement, Ridge
from opteq.layer import Equilibrium
from opteq.models.network import Network, Output
from opteq.operators import Conv2d, Identity, LinearOperator, StackedConv2d
from opteq.operators.base import Shape
from opteq.options import one_of, positive, whole
from opteq.penalties import Free
from opteq.potentials import Huber, Potential, Spline, Welsch
from opteq.problem import Problem
from opteq.problem.algebra import Sum
from opteq.solve import MemoryGradient, Solver

LEVEL = 1 / 255
"""One grey level: noise is often given in these."""
# How far a first guess carries brightness, in pixels, and what counts as no brightness.
_GUESS, _DARK = 2.0, 1e-3
Borders = Literal["black", "unknown"]
Kind = Literal["weakly_convex", "convex", "gaussians", "gaussian", "total_variation"]


class NoiseScales(nn.Module):
    """exp(s_i(noise)) / noise for each filter i, s_i linear between a few noise levels: how fine a
    response must be to count as noise."""

    levels: Tensor

    def __init__(self, filters: int, levels: tuple[float, ...], start: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("levels", torch.tensor(levels) * LEVEL)
        self.logs = nn.Parameter(torch.full((filters, len(levels)), math.log(start)))

    def forward(self, noise: Tensor) -> Tensor:
        """(batch, filters)."""
        noise = noise.clamp(float(self.levels[0]), float(self.levels[-1]))
        right = torch.searchsorted(self.levels, noise.contiguous()).clamp(1, len(self.levels) - 1)
        low, high = self.levels[right - 1], self.levels[right]
        part = (noise - low) / (high - low)
        logs = torch.lerp(self.logs[:, right - 1], self.logs[:, right], part)
        return (logs.exp() / noise).T


class Restorer(Network):
    """The image z that minimises |Hz - y|^2 / 2 + sum over filters i and places of
    psi(a_i w_i * z) / a_i^2, y the measurements.

    The energy is learned once, from denoising or from a measurement of its own; `at` gives the
    equilibrium for any other H and noise level. Images are grey, (batch, 1, height, width), with
    pixels in [0, 1].
    """

    def __init__(self, layer: Equilibrium, scales: NoiseScales, *, border: int = 0) -> None:
        super().__init__()
        self.layer, self.scales, self.border = layer, scales, border
        self.usual_noise = 25 * LEVEL
        """The noise assumed where none is given: standard deviation of a pixel."""

    @property
    def measurement(self) -> LinearOperator:
        """H, as the model was trained."""
        return self._terms()[0].operator

    @property
    def prior(self) -> Ridge:
        """The learned prior, at the scale 1."""
        return self._terms()[1]

    def _terms(self) -> tuple[Measurement, Ridge]:
        assert self.layer.problem is not None
        data, prior = cast(Sum, self.layer.problem.similarity).terms
        return cast(Measurement, data), cast(Ridge, prior)

    def normalize(self, mean: Tensor, std: Tensor) -> None:
        """Energies are of pixels as they are."""

    def at(
        self,
        noise: float | Tensor,
        H: LinearOperator | None = None,
        *,
        strength: float = 1.0,
        batch: int = 1,
    ) -> Equilibrium:
        """The layer that restores images from y = Hz + noise, H by default the model's own: the
        same weights, with the prior at this noise level (one number, or one per image).

        Where H loses much, a prior for more noise than there is, and a larger `strength`, restore
        more. `opteq.certificate` of the answer says what is certain.
        """
        levels = self._levels(noise, batch)
        data = self._terms()[0] if H is None else Measurement(H)
        prior = self.prior.rescaled(self.scales(levels), strength)
        layer = copy.copy(self.layer)
        layer._modules = dict(self.layer._modules)
        layer.map = Proximal(Problem(penalty=Free(), similarity=data + prior))
        return layer

    def _levels(self, noise: float | Tensor, batch: int) -> Tensor:
        like = self.scales.logs
        levels = torch.as_tensor(noise, dtype=like.dtype, device=like.device).reshape(-1)
        if len(levels) not in (1, batch):
            raise ShapeError(
                f"There are {len(levels)} noise levels for {batch} images.",
                "Give one, or one each.",
            )
        if not bool(((levels >= 0) & levels.isfinite()).all()):
            raise OptionError("A noise level is negative or not finite.", "Give 25 / 255, say.")
        return levels

    def run(self, x: Tensor, noise: float | Tensor | None = None) -> Output:
        """Restored images together with the solution."""
        if x.ndim != 4:
            raise ShapeError(
                f"Measurements have shape (batch, channels, height, width), got {tuple(x.shape)}.",
                "Add the batch axis with y[None].",
            )
        if not x.is_floating_point():
            raise DtypeError(
                f"The images are {x.dtype}.", "Give numbers in [0, 1]: y.float() / 255 for bytes."
            )
        layer = self.at(self.usual_noise if noise is None else noise, batch=len(x))
        if self.training or not self.border or type(self.measurement) is not Identity:
            solution = layer.solve(x, first_guess(self.measurement, x))
            return Output(_single(solution.state), [solution])
        wide, cut = reflected(x, self.border)
        solution = layer.solve(wide, wide)
        return Output(_single(solution.state)[cut], [solution])

    def border_stretch(self, image_shape: Shape | None = None) -> float:
        """How much longer an image can become by being continued at its borders: the root of how
        often a pixel of it can then occur, which is twice along each axis, and three times in
        images (or where their size is not known) hardly larger than the border."""
        if not self.border or type(self.measurement) is not Identity:
            return 1.0
        large = image_shape is not None and min(image_shape[1:]) > 2 * self.border + 2
        return 2.0 if large else 3.0

    def forward(self, x: Tensor, noise: float | Tensor | None = None) -> Tensor:
        return self.run(x, noise).logits

    def compute(self, x: Tensor) -> Output:
        return self.run(x)


def _single(state: object) -> Tensor:
    assert isinstance(state, Tensor)
    return state


def first_guess(H: LinearOperator, y: Tensor) -> Tensor:
    """An image to start from: H'y, and where H loses something a blurred image of what it keeps,
    as bright as that is. Of an image with most pixels missing this is a third of the steps."""
    seen = H.adjoint(y)
    if type(H) is Identity or not len(y):
        return seen
    blur = gaussian_blur(_GUESS).to(seen)
    kept = blur(H.adjoint(H(torch.ones_like(seen[:1]))))
    fill = blur(seen) / kept.clamp(min=_DARK)
    return seen + fill - H.adjoint(H(fill))


def reflected(y: Tensor, border: int) -> tuple[Tensor, tuple[slice, ...]]:
    """Images continued by their reflection, so that filters at their edge see something likely, to
    even sides; and where the images lie in these."""
    height, width = y.shape[-2:]
    down, across = (min(border, side - 1) for side in (height, width))
    # One more row or column to an even side, where there is one to reflect.
    even = [n % 2 if n % 2 + pad < n else 0 for n, pad in ((height, down), (width, across))]
    wide = functional.pad(y, (across, across + even[1], down, down + even[0]), mode="reflect")
    whole = slice(None)
    return wide, (whole, whole, slice(down, down + height), slice(across, across + width))


def restorer(
    *,
    filters: int = 48,
    side: int = 9,
    through: tuple[int, ...] = (),
    kind: Kind = "weakly_convex",
    mu: float = 50.0,
    rho: float = 0.99,
    potentials: Literal["shared", "own"] = "shared",
    levels: tuple[float, ...] = (1.0, 5.0, 15.0, 25.0, 35.0),
    blur: float | None = None,
    border: int = 12,
    in_channels: int = 1,
    task: Literal["restoration"] = "restoration",
    compile: bool = False,
    solver: Solver | None = None,
    gradient: GradientRule | None = None,
) -> Restorer:
    """A learned energy of `filters` of `side` x `side` pixels with zero sum, and a potential of one
    `kind`: a spline with bends in [-rho, mu] or [0, mu], or Gaussians at several widths or at one;
    or total variation, of which only the strength is learned. Filters share the potential, or with
    `potentials="own"` each learns a spline of its own.
    With `through` = (4, 8) filters are composed of small kernels: first four, then eight that all
    filters share, then its own. `levels` are the noise levels, of 255, at which the scale of each
    filter is learned. With `blur` the model learns from images under a Gaussian blur of that width,
    otherwise from images as they are."""
    one_of("task", task, ("restoration",))
    whole("filters", filters, least=1)
    if in_channels != 1:
        raise OptionError(f"in_channels={in_channels}.", "Restorers take grey images: give 1.")
    if len(levels) < 2 or list(levels) != sorted(set(levels)) or levels[0] <= 0:
        raise OptionError(
            f"levels={levels} are not rising positive numbers.", "Give two or more, of 255."
        )
    one_of("potentials", potentials, ("shared", "own"))
    each = filters if potentials == "own" else 1
    prior = _prior(kind, filters, side, tuple(through), _potential(kind, mu, rho, each))
    if compile:
        prior.compile()
    data = Measurement(None if blur is None else gaussian_blur(blur))
    gradient = Implicit(tol=1e-2, max_steps=30) if gradient is None else gradient
    solver = gradient.solver_or(solver, MemoryGradient(tol=1e-4, max_steps=300))
    layer = Equilibrium(
        Problem(penalty=Free(), similarity=data + prior),
        solver=solver,
        gradient=gradient,
        allow_uncertified=blur is not None,
    )
    groups = 1 if kind == "total_variation" else filters
    return Restorer(layer, NoiseScales(groups, levels), border=border)


def _prior(
    kind: Kind, filters: int, side: int, through: tuple[int, ...], potential: Potential
) -> Ridge:
    if kind == "total_variation":
        return Ridge(differences(), potential, group=2)
    return Ridge(_filters(filters, side, through), potential)


def differences() -> Conv2d:
    """Differences to the right and down, together of norm 1 at the most. At the last column and row
    the image is compared with black."""
    kernels = torch.zeros(2, 1, 3, 3)
    kernels[:, 0, 1, 1] = -1
    kernels[0, 0, 1, 2] = kernels[1, 0, 2, 1] = 1
    return Conv2d.from_weight(kernels / 8**0.5)


def _potential(kind: Kind, mu: float, rho: float, channels: int) -> Potential:
    one_of("kind", kind, get_args(Kind))
    if kind in ("weakly_convex", "convex"):
        return Spline(mu, rho if kind == "weakly_convex" else 0.0, channels=channels)
    if channels > 1:
        raise OptionError(
            f"Filters cannot have potentials of their own with kind={kind!r}.",
            'Leave out `potentials`, or give kind="weakly_convex" or "convex".',
        )
    if kind == "total_variation":
        return Huber(mu, 1 / mu)
    if kind == "gaussian":
        return Welsch(2.0, 1.0, rho=rho)
    # The widths at which knots of a spline would lie.
    gammas = [0.5 / width**2 for width in (0.02, 0.06, 0.2, 0.6, 2.0)]
    return Welsch([1.0] * len(gammas), gammas, rho=rho)


def _filters(filters: int, side: int, through: tuple[int, ...]) -> Conv2d:
    """Random filters of zero sum. What is stored is several times as large as the filters may be,
    so that a learning rate that suits scales and potential suits filters too."""
    if through:
        return _composed(filters, side, through)
    operator = Conv2d(1, filters, side, norm_bound=1.0, zero_sum=True)
    if not operator.raw.is_meta:
        _fade(operator.raw)
        with torch.no_grad():
            operator.raw.mul_(4 / operator.differentiable_norm(operator.direction(operator.raw)))
    return operator


def _composed(filters: int, side: int, through: tuple[int, ...]) -> StackedConv2d:
    count = len(through) + 1
    margin, rest = divmod(side - 1, count)
    if rest or margin % 2:
        raise OptionError(
            f"side={side} is not that of {count} odd kernels one after the other.",
            f"Give side={1 + 2 * count * max(1, math.ceil((side - 1) / (2 * count)))}.",
        )
    operator = StackedConv2d((1, *through, filters), margin + 1, norm_bound=1.0, zero_sum=True)
    if not operator.raw.is_meta:
        with torch.no_grad():
            for kernel in operator.parameters():
                kernel.normal_(std=0.2)
            operator.raw.mul_(0.5)
    return operator


@torch.no_grad()
def _fade(kernels: Tensor) -> None:
    """Towards their edges."""
    side = kernels.shape[-1]
    place = torch.arange(side) - side // 2
    window = torch.exp(-place.square() / (2 * (side / 5) ** 2))
    kernels.mul_(window[:, None] * window)


def gaussian_blur(width: float, *, borders: Borders = "black") -> LinearOperator:
    """A Gaussian blur of this standard deviation, in pixels, cut off at four of them.

    What lies beyond the borders of an image is black, or `unknown`, as in a photograph, whose edge
    was lit from outside it: then the operator takes images that are larger on each side by as many
    pixels as the blur reaches, and so are those that are restored.
    """
    positive("blur", width)
    one_of("borders", borders, get_args(Borders))
    radius = max(1, math.ceil(4 * width))
    place = torch.arange(-radius, radius + 1, dtype=torch.float64)
    line = torch.exp(-place.square() / (2 * width**2))
    line = (line / line.sum()).float()[None, None]
    pad = radius if borders == "black" else 0
    down = Conv2d.from_weight(line[..., None], padding=(pad, 0))
    return down @ Conv2d.from_weight(line[..., None, :], padding=(0, pad))
