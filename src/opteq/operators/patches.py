"""The patch projection of GEQ: images cut into patches, each multiplied by one matrix H."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from opteq.errors import ShapeError
from opteq.operators.base import Shape
from opteq.operators.products import product
from opteq.operators.spectral import dense_norm
from opteq.operators.weighted import WeightedOperator, scale_to_norm
from opteq.options import strict_options, whole
from opteq.states import exporting, stored_channels_last


class _Root(torch.autograd.Function):
    """B = HQ, square, for H = BQ' with orthonormal Q (the QR decomposition of H'), so BB' = HH'.

    A function of BB' alone has the gradient (dB) Q' in H, however Q moves: there is no inverse,
    so an H that has nearly lost rank does no harm. Only derivatives of gradients need Q's motion.
    """

    @staticmethod
    def forward(ctx: Any, H: Tensor) -> Tensor:
        Q, R = _orthogonal(H)
        ctx.save_for_backward(H, Q)
        ctx.differentiated_again = False
        return R.mT.contiguous()

    @staticmethod
    def backward(ctx: Any, dB: Tensor) -> Tensor:  # type: ignore[override]
        H, Q = ctx.saved_tensors
        again = torch.is_grad_enabled()
        if not again and not ctx.differentiated_again:
            return dB @ Q.mT
        ctx.differentiated_again = True
        with torch.enable_grad():
            # A view, so that the gradient is taken in H as it enters here.
            entry = H.view_as(H) if again else H.detach().requires_grad_()
            B = _orthogonal(entry)[1].mT
            (gradient,) = torch.autograd.grad(B, entry, dB, create_graph=again)
        return gradient


class _Reorder(torch.autograd.Function):
    """The rows of a matrix in another order; `back` undoes `there`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.orders = there, back
        return rows.index_select(0, there)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        there, back = ctx.orders
        return _reordered(gradient.contiguous(), back, there), None, None


def _reordered(rows: Tensor, there: Tensor, back: Tensor) -> Tensor:
    return cast(Tensor, _Reorder.apply(rows, there, back))


_ORDERS: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}
_MOST_ORDERS = 32


def _patch_order(
    height: int, width: int, groups: int, patch: int, batch: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Where the rows (sample, row, column, group) of images go when they are sorted by patch
    (sample, patch row, patch column, group, row and column within), and back. Kept for the largest
    batch seen; smaller ones use its beginning."""
    key = (height, width, groups, patch, device)
    rows = batch * height * width * groups
    known = _ORDERS.get(key)
    if known is None or len(known[0]) < rows:
        if len(_ORDERS) >= _MOST_ORDERS:
            _ORDERS.clear()
        index = torch.arange(rows, device=device)
        grid = index.view(batch, height // patch, patch, width // patch, patch, groups)
        there = grid.permute(0, 1, 3, 5, 2, 4).reshape(-1)
        back = torch.empty_like(there)
        back[there] = index
        known = _ORDERS[key] = (there, back)
    return known[0][:rows], known[1][:rows]


def _orthogonal(H: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(H.dtype, torch.float32)
    Q, R = torch.linalg.qr(H.mT.to(wide))
    return Q.to(H.dtype), R.to(H.dtype)


@strict_options
class PatchProjection(WeightedOperator):
    """r -> (r_i H) over all patches i [GEQ eq. 16, algorithm 1].

    A patch is `split` neighbouring channels of a `patch` x `patch` window; windows and channel
    groups do not overlap. H has shape (split * patch^2, hidden) and is shared by all patches, so
    the norm is exactly that of H. The output has shape (channels / split, hidden, height / patch,
    width / patch). Images stored channel by channel are projected by one strided convolution on a
    view; those stored channels last, by gathering patches and one product, twice as fast.
    """

    def __init__(
        self, *, patch: int = 2, split: int = 8, hidden: int = 64, norm_bound: float | None = 1.0
    ) -> None:
        width = whole("split", split, least=1) * whole("patch", patch, least=1) ** 2
        weight = torch.empty(width, whole("hidden", hidden, least=1))
        nn.init.normal_(weight, std=width**-0.5)
        super().__init__(weight, norm_bound, trained=True)
        self.patch, self.split = patch, split
        scale_to_norm(self)

    @classmethod
    def from_weight(cls, weight: Tensor, *, patch: int = 2) -> PatchProjection:
        """A fixed H of shape (split * patch^2, hidden), taken as it is."""
        if isinstance(weight, Tensor) and (
            weight.ndim != 2 or weight.shape[0] % whole("patch", patch, least=1) ** 2
        ):
            raise ShapeError(
                f"A patch projection of patch={patch} was given H of shape {tuple(weight.shape)}.",
                "Give a matrix of shape (split * patch^2, hidden).",
            )
        operator = cls.__new__(cls)
        WeightedOperator.__init__(operator, weight, None, trained=False)
        operator.patch, operator.split = patch, weight.shape[0] // patch**2
        return operator

    @property
    def hidden(self) -> int:
        return self.raw.shape[1]

    def forward(self, z: Tensor) -> Tensor:
        self.codomain_shape(tuple(z.shape[1:]))
        batch, channels, height, width = z.shape
        groups = channels // self.split
        if stored_channels_last(z):
            order = _patch_order(height, width, groups, self.patch, batch, z.device)
            pieces = _reordered(z.movedim(1, -1).reshape(-1, self.split), *order)
            out = product(pieces.view(-1, len(self.raw)), self._matrix())
            places = (batch, height // self.patch, width // self.patch, groups, self.hidden)
            return out.view(places).permute(0, 3, 4, 1, 2)
        views = z.reshape(-1, self.split, height, width)
        out = functional.conv2d(views, self._kernel(), stride=self.patch)
        return out.reshape(batch, groups, *out.shape[1:])

    def adjoint(self, r: Tensor) -> Tensor:
        channels, height, width = self.domain_shape(tuple(r.shape[1:]))
        hidden_last = r.permute(0, 3, 4, 1, 2)
        if hidden_last.is_contiguous() and not exporting():
            there, back = _patch_order(height, width, r.shape[1], self.patch, r.shape[0], r.device)
            pieces = product(hidden_last.reshape(-1, self.hidden), self._matrix().mT)
            image = _reordered(pieces.view(-1, self.split), back, there)
            return image.view(r.shape[0], height, width, channels).movedim(-1, 1)
        flat = r.reshape(-1, *r.shape[2:])
        out = functional.conv_transpose2d(flat, self._kernel(), stride=self.patch)
        return out.reshape(r.shape[0], channels, height, width)

    def _kernel(self) -> Tensor:
        return self.weight.T.reshape(self.hidden, self.split, self.patch, self.patch)

    def _matrix(self) -> Tensor:
        """H with the places of a patch in front of its channels, as gathering leaves them."""
        parts = self.weight.view(self.split, self.patch, self.patch, self.hidden)
        return parts.permute(1, 2, 0, 3).reshape(-1, self.hidden)

    def root(self) -> PatchProjection:
        """The narrowest projection with the same HH', and so with the same patch distances and the
        same product of projection and adjoint. A hidden width beyond split * patch^2 adds nothing
        to either. Whatever depends on HH' alone has gradients of any order in H."""
        if self.hidden <= self.raw.shape[0]:
            return self
        twin = self.frozen()
        twin._buffers = {"raw": cast(Tensor, _Root.apply(twin.raw))}
        return twin

    def codomain_shape(self, shape: Shape) -> Shape:
        if (
            len(shape) != 3
            or shape[0] % self.split
            or shape[1] % self.patch
            or shape[2] % self.patch
        ):
            raise ShapeError(
                f"Samples of shape {shape} do not split into patches of {self.split} channels x "
                f"{self.patch} x {self.patch}.",
                "Give (channels, height, width) that split and patch divide, or change these.",
            )
        return (
            shape[0] // self.split,
            self.hidden,
            shape[1] // self.patch,
            shape[2] // self.patch,
        )

    def domain_shape(self, shape: Shape) -> Shape:
        if len(shape) != 4 or shape[1] != self.hidden:
            raise ShapeError(
                f"Projected patches are (groups, {self.hidden}, rows, columns), not {shape}.",
                "Give what the projection returned.",
            )
        return shape[0] * self.split, shape[2] * self.patch, shape[3] * self.patch

    def differentiable_norm(self, weight: Tensor) -> Tensor:
        return dense_norm(weight)

    def tight_norm(self, weight: Tensor) -> float:
        return float(dense_norm(weight))

    def extra_repr(self) -> str:
        return (
            f"patch={self.patch}, split={self.split}, hidden={self.hidden}, "
            f"norm_bound={self.norm_bound}"
        )
