"""What the hidden problem guarantees, as numbers with the conditions they rest on."""

from opteq.theory.certificate import certificate
from opteq.theory.claim import Certificate, Claim
from opteq.theory.lipschitz import gaussian_lipschitz, linear_lipschitz, sector_lipschitz
from opteq.theory.stretch import precise, stretch

__all__ = [
    "Certificate",
    "Claim",
    "certificate",
    "gaussian_lipschitz",
    "linear_lipschitz",
    "precise",
    "sector_lipschitz",
    "stretch",
]
