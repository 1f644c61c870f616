"""What the hidden problem guarantees, as numbers with the conditions they rest on."""

from opteq.kernels.inner_product import linear_lipschitz
from opteq.kernels.sector import gaussian_lipschitz, sector_lipschitz
from opteq.theory.certificate import certificate
from opteq.theory.claim import Certificate, Claim
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
