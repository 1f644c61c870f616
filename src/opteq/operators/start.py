"""Where training starts: near-isometric weights, whose whole spectrum is near the norm bound."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from opteq.operators.weighted import WeightedOperator, scale_to_norm
from opteq.options import positive

Module = TypeVar("Module", bound=nn.Module)


def start_orthogonal(module: Module, *, noise: float = 0.1) -> Module:
    """Start every operator in `module` near an isometry: an orthogonal matrix at the central tap of
    each kernel, and `noise` times its size spread over all taps at random; scaled to the norm bound
    where there is one.

    A random kernel whose largest singular value is 0.95 has a median of 0.5, and its W'W acts like
    0.3 on most directions; here it acts like nearly the bound on all of them, and the equilibrium
    differs the more from one application of its map.

    >>> from opteq.operators import Conv2d
    >>> W = start_orthogonal(Conv2d(16, 16, norm_bound=0.9), noise=0.0)
    >>> z = torch.randn(4, 16, 8, 8)
    >>> 0.85 < float((W(z).norm() / z.norm()).detach()) <= 0.9
    True
    """
    positive("noise", noise, allow_zero=True)
    for operator in module.modules():
        if isinstance(operator, WeightedOperator) and operator.raw.ndim in (2, 4):
            # A composed kernel has several, and near-isometries compose to one.
            for raw in operator.parameters():
                if not raw.is_meta:
                    _start(raw, noise)
            scale_to_norm(operator)
    return module


@torch.no_grad()
def _start(raw: Tensor, noise: float) -> None:
    centre = torch.empty(raw.shape[:2], dtype=raw.dtype, device=raw.device)
    nn.init.orthogonal_(centre)
    # The size that the noise's norm has to be compared with is 1, that of the orthogonal matrix.
    raw.copy_(torch.randn_like(raw) * (noise / raw[0].numel() ** 0.5))
    if raw.ndim == 2:
        raw.add_(centre)
    else:
        raw[:, :, raw.shape[2] // 2, raw.shape[3] // 2].add_(centre)
