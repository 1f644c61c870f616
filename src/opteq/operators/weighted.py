"""Operators with one weight tensor, trained within a norm bound or taken as it is."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from opteq.errors import DtypeError, OptionError
from opteq.operators.base import LinearOperator
from opteq.options import one_of, positive
from opteq.states import all_finite, same_bits

Module = TypeVar("Module", bound=nn.Module)


@dataclass
class _NormCache:
    """The last norm, and the weights and the setting it was computed for, compared by value.

    Version counters miss writes through `.data`; a stale norm would be a wrong certificate.
    """

    weight: Tensor | None = None
    setting: object = None
    norm: float = math.nan

    def get(self, weight: Tensor, setting: object, compute: Callable[[Tensor], float]) -> float:
        known = self.weight
        if (
            known is None
            or self.setting != setting
            or known.shape != weight.shape
            or (known.dtype, known.device) != (weight.dtype, weight.device)
            or not same_bits(known, weight)
        ):
            self.norm = compute(weight) if all_finite(weight) else math.nan
            self.weight, self.setting = weight.detach().clone(), setting
        return self.norm


class WeightedOperator(LinearOperator):
    """Keeps `weight` within `norm_bound` by scaling it down when its norm is above.

    The stored tensor `raw` is what the optimizer moves; `weight` is

        weight = raw * min(1, norm_bound / certain_norm(raw))

    where `certain_norm` is an upper bound that needs no state, so the bound holds after every
    optimizer step, load or edit, and the gradient flows through the norm.
    """

    raw: Tensor
    _limit: Tensor | float | None = None
    """Of a frozen twin: what its norm was found to be at most."""
    gain: nn.Parameter | None
    """Lengths that are trained separately from directions; see `weight_norm`."""

    def __init__(self, weight: Tensor, norm_bound: float | None, *, trained: bool) -> None:
        super().__init__()
        if not isinstance(weight, Tensor):
            raise DtypeError(f"The weight is a {type(weight).__name__}.", "Give a torch tensor.")
        if not weight.is_floating_point():
            raise DtypeError(
                f"The weight has dtype {weight.dtype}.", "Give a floating-point tensor."
            )
        if norm_bound is not None:
            positive("norm_bound", norm_bound)
        self._norm_bound = norm_bound
        self._trained, self._scaled = trained, not trained
        self._weight_norm, self._raw_norm = _NormCache(), _NormCache()
        self.register_parameter("gain", None)
        if trained:
            self.raw = nn.Parameter(weight)
        else:
            self.register_buffer("raw", weight)

    @property
    def norm_bound(self) -> float | None:
        """The bound on |W|; None for weights that are free or taken as they are."""
        return self._norm_bound

    @norm_bound.setter
    def norm_bound(self, value: float | None) -> None:
        if value is not None and (not self._trained or self.gain is not None):
            raise OptionError(
                "Weights that are taken as they are, or have a gain, cannot keep a norm bound.",
                "Build the operator with norm_bound instead.",
            )
        self._norm_bound = None if value is None else positive("norm_bound", value)

    @property
    def norm_setting(self) -> object:
        """What the norm depends on besides the weight."""
        return None

    def direction(self, raw: Tensor) -> Tensor:
        """The weight before it is scaled: `raw` itself, unless a subclass keeps it within some
        linear space."""
        return raw

    @abstractmethod
    def differentiable_norm(self, weight: Tensor) -> Tensor:
        """A cheap upper bound of the norm that `weight` would give, with its gradient."""

    @abstractmethod
    def tight_norm(self, weight: Tensor) -> float:
        """The best upper bound of the norm that `weight` gives."""

    @property
    def weight(self) -> Tensor:
        """The weight that is applied. Computed at each access: see `freeze`."""
        return self._weight_and_limit()[0]

    def _weight_and_limit(self) -> tuple[Tensor, Tensor | float | None]:
        """The weight, and a bound of its norm where one was computed on the way."""
        if self._scaled:
            return self.raw, self._limit
        direction = self.direction(self.raw)
        if self.gain is not None:
            lengths = _lengths(direction, self.gain)
            least = torch.finfo(lengths.dtype).tiny  # what has no length stays without one
            return direction * (self.gain / lengths.clamp(min=least)), None
        if self.norm_bound is None:
            return direction, None
        with full_precision(self.raw):
            norm = self._norm_of_raw()
        # Rounding each entry by eps moves the norm by at most eps * sqrt(taps * rank) of itself,
        # rounding the scale by eps.
        taps = self.raw[0, 0].numel()
        rounding = 1 + math.sqrt(taps * min(self.raw.shape[:2]))
        slack = 1 + torch.finfo(self.raw.dtype).eps * rounding
        limit = (norm * slack).clamp(min=self.norm_bound)
        # number / tensor would multiply by a rounded inverse and change weights within the bound.
        scale = torch.full_like(limit, self.norm_bound) / limit
        # Weights that are not finite promise what all do; the solve reports the samples.
        found = (norm * slack).nan_to_num(nan=self.norm_bound).clamp(max=self.norm_bound)
        return (direction * scale).to(self.raw.dtype), found

    def _norm_of_raw(self) -> Tensor:
        """With its gradient where one is needed; otherwise computed once for the same weights."""
        if torch.is_grad_enabled() and self.raw.requires_grad:
            if not all_finite(self.raw):
                # No norm, and no decomposition that could fail: the solve reports the samples.
                return torch.tensor(math.nan, dtype=torch.float64)
            return self.differentiable_norm(self.direction(self.raw))
        # Of the direction, which may depend on more than `raw`.
        with torch.no_grad():
            direction = self.direction(self.raw)
        norm = self._raw_norm.get(
            direction, self.norm_setting, lambda weight: float(self.differentiable_norm(weight))
        )
        return torch.tensor(norm, dtype=torch.float64)

    def norm(self) -> float:
        with torch.no_grad(), full_precision(self.raw):
            return self._weight_norm.get(self.weight, self.norm_setting, self.tight_norm)

    def norm_limit(self) -> float:
        if self._limit is not None:
            return float(self._limit)
        if self.norm_bound is not None:
            return self.norm_bound
        # Free weights promise nothing, and their norm is not computed at every change.
        moving = self.raw.requires_grad or (self.gain is not None and self.gain.requires_grad)
        return math.inf if self._trained and moving else self.norm()

    def frozen(self: Module) -> Module:
        """A twin whose weight is computed once and keeps its gradient history."""
        operator = cast(WeightedOperator, self)
        if operator._scaled:
            # Nothing is left to compute, but the twin may be converted without this one.
            again = _twin(operator)
            again._buffers = dict(operator._buffers)
            return cast(Module, again)
        if "raw" not in operator._parameters and "raw" not in operator._buffers:
            raise OptionError(
                f"The weight of {type(self).__name__} has been parametrised, and nothing would "
                "keep its norm bound.",
                "Operators bound their own norm: use opteq.operators.weight_norm for trained "
                "lengths, and remove the parametrisation.",
            )
        twin = _twin(operator)
        twin._parameters = {"gain": None}
        weight, limit = operator._weight_and_limit()
        twin._buffers = {"raw": weight}
        twin._limit = limit.detach() if isinstance(limit, Tensor) else limit
        twin._scaled = True
        return cast(Module, twin)


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """No autocast: bounds are computed in float64 or with a margin for float32."""
    kind = tensor.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def _twin(module: Module) -> Module:
    """A shallow copy. `copy.copy` would call __setstate__, which torch.compile wraps in something
    that a strict torch.export in the same process refuses."""
    kind = module.__class__
    twin = kind.__new__(kind)
    twin.__dict__.update(module.__dict__)
    return twin


def freeze(module: Module) -> Module:
    """A copy of `module` in which every operator's weight is computed once.

    Code that applies operators many times (a solve) works on the copy and pays for the norm bound
    once; gradients reach the original parameters through the frozen weights.
    """
    if isinstance(module, WeightedOperator):
        return module.frozen()
    if not any(isinstance(child, WeightedOperator) for child in module.modules()):
        return module
    twin = _twin(module)
    twin._modules = {
        name: None if child is None else freeze(child) for name, child in module._modules.items()
    }
    return twin


def scale_to_norm(operator: WeightedOperator) -> None:
    """Start training on the norm bound: the weights as large as they may be."""
    if operator.norm_bound is not None and not operator.raw.is_meta:
        with torch.no_grad():
            norm = operator.differentiable_norm(operator.direction(operator.raw))
            operator.raw.mul_(operator.norm_bound / norm)


def weight_norm(module: Module, *, per: Literal["filter", "tensor"] = "filter") -> Module:
    """Let every operator in `module` train the lengths of its filters (or of its whole weight)
    separately from their directions, weight = gain * raw / |raw|, instead of keeping a norm bound.

    Weights start as they are. This is the weight normalisation of the papers; the gains are free,
    so nothing is certified any more.

    >>> from opteq.operators import Dense
    >>> W = weight_norm(Dense(3, 2, norm_bound=0.9))
    >>> W.gain.shape, W.norm_limit()
    (torch.Size([2, 1]), inf)
    """
    one_of("per", per, ("filter", "tensor"))
    for operator in module.modules():
        if isinstance(operator, WeightedOperator):
            with torch.no_grad():
                axes = (operator.raw.shape[0], *[1] * (operator.raw.ndim - 1))
                like = operator.raw.new_empty(axes if per == "filter" else ())
                if not operator.raw.is_meta:
                    operator.raw.copy_(operator.weight)
                operator.gain = nn.Parameter(_lengths(operator.raw, like).clone())
            operator.norm_bound = None
    return module


def _lengths(weight: Tensor, gain: Tensor) -> Tensor:
    """The norm of each filter, or of the whole weight, whichever `gain` has."""
    axes = tuple(range(1, weight.ndim)) if gain.ndim else None
    return torch.linalg.vector_norm(weight, dim=axes, keepdim=bool(gain.ndim))
