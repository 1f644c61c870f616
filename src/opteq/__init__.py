"""opteq: write down the problem your network should solve; get the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"
__all__ = ["Equilibrium", "__version__"]

if TYPE_CHECKING:
    from opteq.layer import Equilibrium


def __getattr__(name: str) -> Any:
    # Torch takes seconds to import: it is loaded by the first name that needs it.
    if name == "Equilibrium":
        from opteq.layer import Equilibrium

        return Equilibrium
    raise AttributeError(f"module 'opteq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
