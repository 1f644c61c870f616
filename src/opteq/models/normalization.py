"""How the operators of a model start and are normalised, shared by several builders."""

from __future__ import annotations

from typing import Literal, TypeVar

from opteq.operators import LinearOperator, start_orthogonal, weight_norm
from opteq.options import one_of

Operator = TypeVar("Operator", bound=LinearOperator)
Normalization = Literal["spectral", "weight_norm"]
Start = Literal["normal", "orthogonal"]


def normalized(operator: Operator, kind: Normalization, start: Start = "normal") -> Operator:
    """The operator with its norm bound, or with the papers' weight normalisation, which starts at
    that bound and promises nothing afterwards. Weights start at random, or near an isometry."""
    one_of("normalization", kind, ("spectral", "weight_norm"))
    one_of("start", start, ("normal", "orthogonal"))
    if start == "orthogonal":
        start_orthogonal(operator)
    return operator if kind == "spectral" else weight_norm(operator)
