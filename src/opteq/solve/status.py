"""How a sample's solve ended, as a sentence for the person who reads it."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Each member is its sentence: what happened, likely causes first, and what to do."""

    CONVERGED = "Converged: the residual is within the tolerance asked for."
    MAX_STEPS = (
        "Stopped at max_steps with the residual still falling: raise max_steps (steps, of Unrolled "
        "gradients), or use Anderson, which needs fewer steps than Picard."
    )
    STALLED = (
        "The residual stopped falling above the tolerance: perhaps the map is not a contraction "
        "here (lower norm_bound, damp Picard, or use ForwardBackward, which needs only "
        "convexity), or it jumps near its fixed point, or the state tends to zero (set atol)."
    )
    PRECISION = (
        "The residual stopped falling at the rounding error of the dtype, or is not known below "
        "it: loosen tol, or solve in float32 or float64."
    )
    DIVERGED = (
        "The iterates run away: the map is not a contraction here. Lower norm_bound below 1, or "
        "use ForwardBackward if the problem is convex (for a Gaussian kernel: norm^2 below 2.24). "
        "The best iterate is returned."
    )
    NOT_FINITE = (
        "An iterate became NaN or Inf: the map is not a contraction here, or overflows. Lower "
        "norm_bound, use ForwardBackward, or scale the input. The best finite iterate is returned."
    )
    BAD_INPUT = (
        "The map is NaN or Inf where the solve starts: look for NaN or Inf in the injection, the "
        "weights, z0 and, in a backward solve, the incoming gradient. The start is returned."
    )
    NOT_RUN = "No step was allowed (max_steps=0): the start is returned and nothing is known of it."
    INDEFINITE = (
        "The linear system is not positive definite: the state is not a strict minimum of the "
        "hidden problem. Lower norm_bound, or give the gradient rule a solver, "
        "Implicit(solver=Anderson())."
    )


CODES = tuple(Status)


def code(status: Status) -> int:
    """Index under which a status is stored in tensors."""
    return CODES.index(status)
