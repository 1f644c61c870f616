"""What the hidden problem guarantees, as numbers with the conditions they rest on."""

from opteq.theory.certificate import Certificate, Claim, certificate
from opteq.theory.lipschitz import gaussian_lipschitz, linear_lipschitz, sector_lipschitz

__all__ = [
    "Certificate",
    "Claim",
    "certificate",
    "gaussian_lipschitz",
    "linear_lipschitz",
    "sector_lipschitz",
]
