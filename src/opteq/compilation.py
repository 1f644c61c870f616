"""Functions compiled by torch.compile, which run as they are where that fails."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch

from opteq.errors import CompileWarning


def compiled(function: Callable[..., Any], what: str, **options: Any) -> Callable[..., Any]:
    """The function compiled at its first call; as it is where that fails, for want of a compiler,
    say. `what` it is stands in the warning about that. `options` that this torch does not know are
    left out."""
    known = inspect.signature(torch.compile).parameters
    options = {name: value for name, value in options.items() if name in known}
    fast: Callable[..., Any] | None = torch.compile(function, **options)

    def run(*arguments: Any) -> Any:
        nonlocal fast
        if fast is not None:
            try:
                return fast(*arguments)
            except RuntimeError as error:
                found = function(*arguments)  # a fault of the function itself is raised here
                fast = None
                reason = (str(error).splitlines() or [""])[0][:120]
                warnings.warn(
                    f"{what} could not be compiled ({reason}); it runs more slowly without.",
                    CompileWarning,
                    stacklevel=2,
                )
                return found
        return function(*arguments)

    return run
