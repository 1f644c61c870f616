"""What a similarity is: the S of the hidden problem, what the network extracts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from opteq.errors import DeviceError, DtypeError, OptionError, ShapeError
from opteq.inheritance import forget
from opteq.operators import Conv2d, Dense, LinearOperator, WeightedOperator, freeze
from opteq.operators.base import Norms, fits, promised
from opteq.options import is_number
from opteq.problem.curvature import UNKNOWN, Curvature, SimilarityBounds
from opteq.problem.parabolas import Energy
from opteq.states import all_finite, exporting, looking_is_free, require_alike

Product = Callable[[Tensor], Tensor]
Weights = LinearOperator | Tensor


class BoundSimilarity(ABC):
    """A similarity with its injection: S(.; u), with all that depends on u alone computed.

    `gradient` is called once per iteration of a solve and does nothing that could be done once.
    """

    fresh_gradient = False
    """Whether `gradient` returns memory that nothing else uses, so that it may be overwritten."""
    quadratic = False
    """Whether S is quadratic in z, so that its gradient is affine."""
    state_is_known = True
    """Whether `zeros` knows the shape of states, and does not guess it from u."""

    @abstractmethod
    def value(self, z: Tensor) -> Tensor:
        """S(z; u) for each sample."""

    @abstractmethod
    def gradient(self, z: Tensor) -> Tensor:
        """The gradient of S in z."""

    @abstractmethod
    def zeros(self) -> Tensor:
        """The zero state: where solves start."""

    def check(self, z: Tensor) -> None:  # noqa: B027
        """Refuse a similarity that cannot be evaluated and differentiated at z."""

    @abstractmethod
    def select(self, index: Tensor) -> BoundSimilarity:
        """The same for some of the samples."""

    @abstractmethod
    def curvature(self) -> Curvature:
        """Bounds of the Hessian, sharpened by what is known about u."""

    def gates(self, z: Tensor) -> Tensor | None:
        """How much each part of z takes in, in (0, 1], for similarities that gate."""
        return None

    def energy(self) -> Energy | None:
        """-S as terms that lie below parabolas, if it has that form."""
        return None

    def hessian(self, z: Tensor) -> Product:
        """v -> (Hessian of S at z) v, with all that depends on z alone computed."""
        product = torch.func.vjp(self.gradient, z)[1]
        return lambda v: product(v)[0]


class StartAtZero:
    """Whether a bound similarity is being evaluated at zero, where W need not be applied: solves
    start there. Only its first evaluation is looked at, and only where looking is free. Weights
    that are not finite are applied anyway, so that the solve finds out."""

    def __init__(self, operator: LinearOperator) -> None:
        self.operator, self.seen = operator, False

    def at(self, z: Tensor) -> bool:
        """Whether z is zero, if this is the first evaluation."""
        if self.seen or torch.is_grad_enabled() or not looking_is_free(z):
            return False
        self.seen = True
        if bool(z.any()):
            return False
        weights = (m.weight for m in self.operator.modules() if isinstance(m, WeightedOperator))
        return all(all_finite(weight) for weight in weights)


class Similarity(nn.Module):
    """S(z; u). A subclass writes `value`, and the gradient is derived; or it overrides `bind`
    with a closed form, as the built-in kernels do.

    Similarities add and scale: `Linear(W) + 0.5 * Gaussian(V)`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._checked: set[tuple[int, ...]] = set()

    def value(self, z: Tensor, u: Tensor) -> Tensor:
        """S(z; u), one number per sample, from differentiable torch operations."""
        if type(self).bind is Similarity.bind:
            raise NotImplementedError(f"{type(self).__name__} must define value(self, z, u).")
        return self.bind(u).value(z)

    def gradient(self, z: Tensor, u: Tensor) -> Tensor:
        """The gradient of S in z."""
        return self.bind(u).gradient(z)

    def bind(self, u: Tensor) -> BoundSimilarity:
        """Fix the injection: what a solve works with."""
        check_injection(self, u)
        return _Derived(freeze(self), u, self._checked)

    def curvature(self) -> Curvature:
        """Bounds of the Hessian of S for every z and u, whatever training does to the weights
        within their norm bounds. Unknown unless a subclass knows better."""
        return UNKNOWN

    def bounds(self, norms: Norms = promised) -> SimilarityBounds:
        """Everything that is known about S, given these norms of its operators. A subclass that
        knows only its curvature need not define this."""
        return SimilarityBounds(self.curvature())

    def size_path(self) -> list[nn.Module] | None:
        """The operators that determine how far the sizes of states differ from those of
        injections: an empty list for equal sizes, None where that is not known."""
        return None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        forget(cls, Similarity, changed=("curvature",), shortcuts=("bounds",))

    def zeros(self, u: Tensor) -> Tensor:
        """The zero state that belongs to u.

        It has the shape of u, unless the similarity holds an operator that maps states onto
        injections (`u - Wz`): then the shape that this operator takes. Override for other shapes.
        """
        shape = tuple(u.shape[1:])
        operators = [m for m in self.children() if isinstance(m, LinearOperator)]
        for operator in operators:
            if not fits(operator.codomain_shape, shape) and fits(operator.domain_shape, shape):
                shape = operator.domain_shape(shape)
                break
        return u.new_zeros((u.shape[0], *shape))

    def __add__(self, other: Similarity) -> Similarity:
        from opteq.problem.algebra import Sum

        if not isinstance(other, Similarity):
            return NotImplemented
        return Sum(self, other)

    def __mul__(self, factor: float) -> Similarity:
        from opteq.problem.algebra import Scaled

        if not is_number(factor) or not math.isfinite(factor):
            raise OptionError(
                f"A similarity cannot be multiplied by {factor!r}.", "Multiply by a finite number."
            )
        return Scaled(self, float(factor))

    __rmul__ = __mul__

    def __neg__(self) -> Similarity:
        return self * -1.0

    def __sub__(self, other: Similarity) -> Similarity:
        return self + -other if isinstance(other, Similarity) else NotImplemented

    def __radd__(self, other: object) -> Similarity:
        # sum() starts at 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented


class _Derived(BoundSimilarity):
    """A user's similarity: gradient and Hessian by torch.func."""

    def __init__(self, similarity: Similarity, u: Tensor, checked: set[tuple[int, ...]]) -> None:
        self.similarity, self.u = similarity, u
        self.checked = checked
        """Shapes of states whose value was found to be differentiable; shared by all solves."""
        self.state_is_known = type(similarity).zeros is not Similarity.zeros

    def value(self, z: Tensor) -> Tensor:
        value = self.similarity.value(z, self.u)
        found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if found != (z.shape[0],):
            raise ShapeError(
                f"{type(self.similarity).__name__}.value returned {found} for a batch of {len(z)}.",
                f"Return one number per sample, shape ({len(z)},): sum over all but the batch.",
            )
        return value

    def check(self, z: Tensor) -> None:
        """Refuse a value from which no gradient in z can be derived: it would be taken for 0."""
        if exporting():  # it was checked where it was trained
            return
        if len(z) != len(self.u):
            raise ShapeError(
                f"z has {len(z)} samples, u {len(self.u)}.", "Give one state for each injection."
            )
        require_alike("z", z, self.u)
        shape = tuple(z.shape[1:])
        if not len(z) or shape in self.checked:
            return
        with torch.enable_grad():
            leaf = z.detach()[:1].clone().requires_grad_()
            value = _Derived(self.similarity, self.u[:1], self.checked).value(leaf).sum()
            slope = None
            if value.requires_grad:
                (slope,) = torch.autograd.grad(value, leaf, allow_unused=True)
        if slope is None:
            raise OptionError(
                f"{type(self.similarity).__name__}.value does not depend on z in a way that can be "
                "differentiated.",
                "Use torch operations on z, without detach, no_grad, argmax or numpy.",
            )
        self.checked.add(shape)

    def gradient(self, z: Tensor) -> Tensor:
        # Samples are independent, so the gradient of the sum holds the gradient of each.
        if exporting():
            with torch.enable_grad():
                leaf = z.detach().requires_grad_()
                return torch.autograd.grad(self.value(leaf).sum(), leaf)[0]
        return torch.func.grad(lambda state: self.value(state).sum())(z)

    def zeros(self) -> Tensor:
        zero = self.similarity.zeros(self.u)
        try:
            self.check(zero)
        except (RuntimeError, ShapeError) as error:
            if self.state_is_known:
                raise
            name, shape = type(self.similarity).__name__, tuple(zero.shape[1:])
            line = " ".join(str(error).split())[:120]
            raise ShapeError(
                f"{name}.value does not take states of shape {shape}, guessed from u ({line}).",
                f"Give {name} the method `def zeros(self, u): return u.new_zeros(len(u), ...)` "
                "with the shape of its states, or give the solve a z0.",
            ) from None
        return zero

    def select(self, index: Tensor) -> _Derived:
        return _Derived(self.similarity, self.u[index], self.checked)

    def curvature(self) -> Curvature:
        return self.similarity.curvature()


def as_operator(operator: Weights) -> LinearOperator:
    """The operator itself, or one made from a plain tensor: a matrix (out, in) or a kernel
    (out, in, height, width), taken as fixed weights."""
    if isinstance(operator, Tensor) and operator.ndim in (2, 4):
        kind = Dense if operator.ndim == 2 else Conv2d
        return kind.from_weight(operator)
    if not isinstance(operator, LinearOperator):
        raise OptionError(
            f"The operator W is a {type(operator).__name__}.",
            "Give Dense(in, out), Conv2d(in, out), or a tensor for fixed weights.",
        )
    return operator


def check_injection(module: nn.Module, u: Tensor) -> None:
    """Refuse an injection that the weights of `module` cannot be applied to."""
    if not isinstance(u, Tensor) or not u.is_floating_point():
        found = u.dtype if isinstance(u, Tensor) else type(u).__name__
        raise DtypeError(f"The injection u is {found}.", "Give a floating-point tensor.")
    if u.ndim < 2:
        raise ShapeError(
            f"The injection u has shape {tuple(u.shape)}.", "Put the batch first: (batch, ...)."
        )
    for operator in module.modules():
        if not isinstance(operator, WeightedOperator):
            continue
        weight = operator.raw
        if weight.device != u.device:
            raise DeviceError(
                f"The weights are on {weight.device} and the injection u on {u.device}.",
                f"Move one: layer.to({str(u.device)!r}) or u.to({str(weight.device)!r}).",
            )
        if weight.dtype != u.dtype and not torch.is_autocast_enabled(u.device.type):
            raise DtypeError(
                f"The weights are {weight.dtype} and the injection u is {u.dtype}.",
                f"Convert one: layer.to({u.dtype}) or u.to({weight.dtype}).",
            )
