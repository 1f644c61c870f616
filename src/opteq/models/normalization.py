"""The normalisation of operators, shared by several builders."""

from __future__ import annotations

from typing import Literal, TypeVar

from opteq.operators import LinearOperator, weight_norm
from opteq.options import one_of

Operator = TypeVar("Operator", bound=LinearOperator)
Normalization = Literal["spectral", "weight_norm"]


def normalized(operator: Operator, kind: Normalization) -> Operator:
    """The operator with its norm bound, or with the papers' weight normalisation, which starts at
    that bound and promises nothing afterwards."""
    one_of("normalization", kind, ("spectral", "weight_norm"))
    return operator if kind == "spectral" else weight_norm(operator)
