"""What can be reproduced: ids with a line about each. Nothing heavy is imported here."""

from __future__ import annotations

TITLES = {
    "geq-t1": "accuracy on CIFAR-10 and CIFAR-100 against ResNet, MDEQ, MOptEq [GEQ table 1]",
    "geq-t2": "accuracy on ImageNette and ImageNet-100 against the same [GEQ table 2]",
    "geq-t3": "super-classes with one sub-class of each never seen [GEQ table 3]",
    "geq-t5": "kernels: linear, polynomial, sigmoid, Gaussian [GEQ table 5]",
    "geq-f2": "19 corruptions, 5 severities [GEQ figure 2]",
    "geq-f3": "Grad-CAM maps [GEQ figure 3]",
    "geq-f4": "patch size and channel split [GEQ figure 4]",
    "kerdeq-t3": "five classes known, five unknown: divergences [KerDEQ table 3]",
    "kerdeq-f3": "the Gaussian's gamma [KerDEQ figure 3]",
    "opteq-t3": "alpha, decorrelation, norm regularisers [OptEq table 3]",
    "opteq-t4": "against Neural ODE and monotone DEQ [OptEq table 4]",
    "opteq-t5": "regularisers inside the map and by SAM [OptEq table 5]",
    "opteq-t7": "ImageNet accuracy [OptEq table 7]",
    "opteq-t8": "unrolled steps against implicit gradients [OptEq table 8]",
    "opteq-t9": "training speed [OptEq table 9]",
    "opteq-t10": "segmentation against FCN [OptEq table 10]",
    "mopteq-t1": "CIFAR-10: coupling, fusion, perturbation enhancement [MOptEq table 1]",
    "mopteq-t2": "CIFAR-100 and ImageNette against MDEQ [MOptEq table 2]",
    "mopteq-t3": "without heritage, without diversity [MOptEq table 3]",
    "mopteq-t4": "ImageNet at 13M parameters [MOptEq table 4]",
    "mopteq-t5": "adversarial training with and without perturbation enhancement [MOptEq table 5]",
    "mopteq-t6": "memory and time, one-step and implicit gradients, MDEQ [MOptEq table 6]",
    "mopteq-f2": "channel correlations of neighbouring branches [MOptEq figure 2]",
    "mopteq-f3": "reconstructed perturbation, PGD, augmented loss [MOptEq figure 3]",
    "mopteq-f4": "convergence against the weight of diversity [MOptEq figure 4]",
    "ours-gate": "where the Gaussian gate earns its cost: gamma from 0 up",
    "ours-depth": "1, 2, 5, 10 applications of the map, and the equilibrium",
    "ours-where": "gate and equilibrium: calibration, unknown classes, corruption, attack",
}
