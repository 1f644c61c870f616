"""A warning for equilibria that do nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from opteq.errors import InertWarning
from opteq.layer import equilibria

# A solve to a relative residual of tol knows its state to a few times tol.
_NOISE = 10.0


def warn_if_inert(
    model: nn.Module, figures: Mapping[str, Any], tolerance: float | None = None
) -> None:
    """Tell the user of a model whose equilibria cannot be told from one application of their maps:
    solving them is wasted. `figures` are those of a test, solved to this tolerance, by default the
    model's."""
    solved = [layer for layer in equilibria(model) if not layer.gradient.is_forward_pass]
    if not solved or "feedback" not in figures:
        return
    if tolerance is None:
        tolerance = max(layer.solver.tol for layer in solved)
    if figures["feedback"] <= _NOISE * tolerance:
        warnings.warn(
            f"The equilibria differ from one application of their maps by "
            f"{100 * figures['feedback']:.2g}%, which a tolerance of {tolerance:g} can hardly tell "
            "from nothing: solving them changes nothing. Normalise the injection "
            '(injection="normalized"), raise '
            "norm_bound, train with implicit gradients, or apply the map once.",
            InertWarning,
            stacklevel=3,
        )
