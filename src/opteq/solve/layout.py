"""States of any shape, seen by the solvers as one row per sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap
from opteq.errors import DtypeError, OptionError, ShapeError
from opteq.problem.curvature import Number
from opteq.states import State, as_tuple, like, stored_channels_last


class Layout:
    """Packs a tensor, or a tuple of tensors with a common batch, into (batch, size) and back.

    Solvers work in float32 at least, whatever the precision of the map. Rows keep the memory order
    of the state, so that images stored channels last are copied neither way.
    """

    def __init__(self, state: State) -> None:
        parts = as_tuple(state) if isinstance(state, (Tensor, tuple, list)) else ()
        if not parts or not all(isinstance(p, Tensor) and p.is_floating_point() for p in parts):
            raise DtypeError(
                "The start z0 is not made of floating-point tensors.",
                "Give a tensor, or a tuple of tensors.",
            )
        if any(p.ndim < 1 for p in parts) or len({len(p) for p in parts}) != 1:
            raise ShapeError(
                f"The parts of z0 have shapes {[tuple(p.shape) for p in parts]}.",
                "Put the batch first, of the same size in every part.",
            )
        self.template = state
        self.shapes = [tuple(p.shape[1:]) for p in parts]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.dtypes = [p.dtype for p in parts]
        self.channels_last = [stored_channels_last(p) for p in parts]
        precisions = [torch.finfo(dtype).eps for dtype in self.dtypes]
        kind = parts[0].device.type
        if kind in ("cpu", "cuda", "xpu") and torch.is_autocast_enabled(kind):
            precisions.append(torch.finfo(torch.get_autocast_dtype(kind)).eps)
        self.precision = max(precisions)
        """Rounding error of the map: of its states, or of autocast."""
        self.work_dtype = max(
            (torch.promote_types(p.dtype, torch.float32) for p in parts), key=lambda d: d.itemsize
        )
        rows = parts[0] is state and parts[0].ndim == 2
        self.flat_dtype = self.work_dtype if rows and self.work_dtype == self.dtypes[0] else None
        """That of states which are rows already; None if states are not."""

    def pack(self, state: State) -> Tensor:
        if isinstance(state, Tensor) and state.dtype is self.flat_dtype:
            return state
        rows = [
            (p.movedim(1, -1) if last else p).reshape(len(p), n)
            for p, n, last in zip(as_tuple(state), self.sizes, self.channels_last, strict=True)
        ]
        return (rows[0] if len(rows) == 1 else torch.cat(rows, 1)).to(self.work_dtype)

    def unpack(self, flat: Tensor) -> State:
        if self.flat_dtype is not None:
            return flat
        pieces = flat.split(self.sizes, 1) if len(self.sizes) > 1 else (flat,)
        kinds = zip(pieces, self.shapes, self.dtypes, self.channels_last, strict=True)
        parts = tuple(
            piece.to(dtype).reshape(len(flat), *shape[1:], shape[0]).movedim(-1, 1)
            if last
            else piece.to(dtype).reshape(len(flat), *shape)
            for piece, shape, dtype, last in kinds
        )
        return like(self.template, parts)

    def pack_image(self, image: Any, batch: int) -> Tensor:
        """Pack what a map returned, or refuse it if it is not a state like the one it was given."""
        parts = image if isinstance(image, tuple) else (image,)
        found = [tuple(p.shape) if isinstance(p, Tensor) else type(p).__name__ for p in parts]
        expected = [(batch, *shape) for shape in self.shapes]
        if found != expected:
            raise ShapeError(
                f"The map takes states of shape {expected} to {found}.",
                "A fixed point needs a map from a space to itself; check z0 and the map.",
            )
        return self.pack(image)


class LastEvaluation:
    """Keeps the graph of the latest application of a map, so that differentiating it at the
    solution need not apply it there again."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.image: State | None = None
        self.expected = False
        """Whether the next application is likely to be the last."""

    def apply(self, map: Callable[[Any], Any], state: State) -> State:
        """map(state), with a graph if it may be the last."""
        self.forget()
        if not self.expected:
            return map(state)
        # The graph keeps the state, and the solver will write to its memory.
        self.state = like(state, tuple(part.clone() for part in as_tuple(state)))
        with torch.enable_grad():
            image = map(self.state)
        self.image = image
        return like(image, tuple(part.detach() for part in as_tuple(image)))

    def image_of(self, state: State) -> State | None:
        """The image of `state`, if it was the latest."""
        if self.state is None:
            return None
        pairs = zip(as_tuple(state), as_tuple(self.state), strict=True)
        return self.image if all(torch.equal(a, b) for a, b in pairs) else None

    def forget(self) -> None:
        self.state = self.image = None


class FlatMap:
    """A map on packed states, for all samples or for some of them."""

    def __init__(
        self, map: Callable[[Any], Any], layout: Layout, last: LastEvaluation | None = None
    ) -> None:
        self.map, self.layout, self.last = map, layout, last
        self._looked = False

    def __call__(self, flat: Tensor) -> Tensor:
        before = self._trace(flat)
        state = self.layout.unpack(flat)
        image = self.map(state) if self.last is None else self.last.apply(self.map, state)
        image = self.layout.pack_image(image, len(flat))
        if not _untouched(flat, before):
            raise OptionError(
                "The map changes its argument in place, so nothing can be compared with it.",
                "Return a new tensor.",
            )
        return image

    def _trace(self, flat: Tensor) -> int | Tensor | None:
        """What tells whether a tensor was changed in place: the count of such changes, which
        inference tensors do not keep; of those a copy, once."""
        if not flat.is_inference():
            return flat._version
        looked, self._looked = self._looked, True
        return None if looked else flat.clone()

    def contraction(self) -> Number:
        """The factor by which the map is known to contract; inf for a plain function."""
        return math.inf if self.bound is None else self.bound.curvature().contraction

    @property
    def bound(self) -> BoundMap | None:
        return self.map if isinstance(self.map, BoundMap) else None

    @property
    def separable(self) -> bool:
        """Whether the map can be restricted to some of the samples."""
        return self.bound is not None and self.bound.independent

    def select(self, index: Tensor) -> FlatMap:
        """The map for the samples at `index`, if it is `separable`."""
        assert self.bound is not None
        if self.last is not None:
            self.last.forget()
        return FlatMap(self.bound.select(index), self.layout)

    def project(self, flat: Tensor) -> Tensor:
        """Bring an extrapolated point, which may be overwritten, back to where the map's objective
        is finite."""
        if self.bound is None:
            return flat
        return self.layout.pack(self.bound.project(self.layout.unpack(flat), overwrite=True))

    def objective(self, flat: Tensor) -> Tensor | None:
        return None if self.bound is None else self.bound.objective(self.layout.unpack(flat))


def _untouched(flat: Tensor, before: int | Tensor | None) -> bool:
    if isinstance(before, Tensor):
        return bool(((flat == before) | before.isnan()).all())
    return before is None or flat._version == before
