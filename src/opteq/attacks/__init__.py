"""Attacks on images: projected gradients, and which images withstand them."""

from opteq.attacks.projected_gradient import Attack, projected_gradient
from opteq.attacks.withstand import rules_for, strongest_l2, withstands

__all__ = ["Attack", "projected_gradient", "rules_for", "strongest_l2", "withstands"]
