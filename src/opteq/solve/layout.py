"""States of any shape, seen by the solvers as one row a sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opteq.equilibrium.base import BoundMap, State, as_tuple, like
from opteq.errors import DtypeError, OptionError, ShapeError
from opteq.operators.memory import stored_channels_last
from opteq.problem.curvature import Number


class Layout:
    """Packs a tensor, or a tuple of tensors with a common batch, into (batch, size) and back.

    Solvers work in float32 at least, whatever the precision of the map. Rows keep the memory order
    of the state, so that neither way copies images whose channels are stored last.
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

    def pack(self, state: State) -> Tensor:
        rows = [
            (p.movedim(1, -1) if last else p).reshape(len(p), n)
            for p, n, last in zip(as_tuple(state), self.sizes, self.channels_last, strict=True)
        ]
        return (rows[0] if len(rows) == 1 else torch.cat(rows, 1)).to(self.work_dtype)

    def unpack(self, flat: Tensor) -> State:
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


class FlatMap:
    """A map on packed states, for all samples or for some of them."""

    def __init__(self, map: Callable[[Any], Any], layout: Layout) -> None:
        self.map, self.layout = map, layout

    def __call__(self, flat: Tensor) -> Tensor:
        version = _version(flat)
        image = self.layout.pack_image(self.map(self.layout.unpack(flat)), len(flat))
        if _version(flat) != version:
            raise OptionError(
                "The map changes its argument in place, so nothing can be compared with it.",
                "Return a new tensor.",
            )
        return image

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
        return FlatMap(self.bound.select(index), self.layout)

    def project(self, flat: Tensor) -> Tensor:
        """Bring an extrapolated point, which may be overwritten, back to where the map's objective
        is finite."""
        if self.bound is None:
            return flat
        return self.layout.pack(self.bound.project(self.layout.unpack(flat), overwrite=True))

    def objective(self, flat: Tensor) -> Tensor | None:
        return None if self.bound is None else self.bound.objective(self.layout.unpack(flat))


def _version(tensor: Tensor) -> int:
    """Counts changes in place; inference tensors do not."""
    return 0 if tensor.is_inference() else tensor._version
