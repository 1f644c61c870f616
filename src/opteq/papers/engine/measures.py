"""What is measured on a trained run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from opteq.attacks import Attack, rules_for
from opteq.data.splits import sample
from opteq.evaluation.attack import SIGNS, UNIFORM, WORST, under_attack
from opteq.evaluation.calibration import calibration_figures, prediction_divergence
from opteq.evaluation.convergence import convergence, mean_steps, plain
from opteq.evaluation.correlation import correlations
from opteq.evaluation.corruption import under_corruption
from opteq.evaluation.efficiency import efficiency
from opteq.evaluation.evaluate import on_test_images
from opteq.evaluation.reconstruction import BINOMIAL, RECONSTRUCTED, under_reconstruction
from opteq.evaluation.reconstruction import UNIFORM as UNIFORM_FEATURES
from opteq.evaluation.saliency import gate_map, grad_cam, share_inside
from opteq.models.network import Classifier, is_right
from opteq.papers.engine.experiment import Measure, Trained
from opteq.papers.engine.results import Values
from opteq.theory import certificate, precise, stretch
from opteq.theory.robustness import exact_radius, survivors

# The longest side of an image that is kept to be shown.
_SHOWN = 256


def images_of(run: Trained, most: int | None = None) -> tuple[Tensor, Tensor]:
    """Images in uint8 and labels: all test images, or a sample."""
    counts = [n for n in (run.limit, most) if n is not None]
    return sample(run.data.test, min(counts) if counts else None)


def accuracy(run: Trained) -> Values:
    """Accuracy, loss, solver steps and residual on the test images; time of an epoch."""
    figures = on_test_images(run.model, run.data, run.limit).figures()
    seconds = [record["seconds"] for record in run.records]
    return {**{k: float(v) for k, v in figures.items()}, "epoch_seconds": min(seconds)}


def all_of(*measures: Measure) -> Measure:
    """Several measures together."""

    def measure(run: Trained) -> Values:
        found: Values = {}
        for one in measures:
            found |= one(run)
        return found

    return measure


@torch.no_grad()
def _logits(run: Trained, images: Tensor) -> Tensor:
    return torch.cat([run.model(part.float() / 255) for part in images.split(250)])


def calibration(run: Trained) -> Values:
    """Calibration on the test images and, for splits with unseen classes, divergences there."""
    x, y = images_of(run)
    unseen = None
    if run.data.unseen is not None:
        other, _ = images_of(replace(run, data=replace(run.data, test=run.data.unseen)))
        unseen = _logits(run, other)
    logits = _logits(run, x)
    found: Values = dict(calibration_figures(logits, y, unseen))
    if unseen is not None:
        found["unknown_kl_reversed"] = prediction_divergence(unseen)
    return found


def unseen_accuracy(run: Trained) -> Values:
    """Accuracy in super-classes on sub-classes that were never seen."""
    assert run.data.unseen is not None
    x, y = images_of(replace(run, data=replace(run.data, test=run.data.unseen)))
    right = is_right(_logits(run, x), y).double().mean()
    return {"unseen_accuracy": float(right)}


def corruption(run: Trained) -> Values:
    """Accuracy under 19 corruptions: on all published images where they are at hand, otherwise on
    images that are made once for all runs."""
    published = run.data.corrupted
    x, y = images_of(run, 500 if published is None else None)
    cache = run.run.path.parent.parent / "corrupted"
    found = under_corruption(run.model, x, y, cache=cache, published=published)
    kinds = {kind: sum(values) / len(values) for kind, values in found.accuracy.items()}
    by_severity = np.mean(list(found.accuracy.values()), axis=0).tolist()
    figures = {**found.figures(), "clean": found.clean, "corrupted_images": float(found.images)}
    return {**figures, "by_severity": by_severity, **kinds}


def attacks(*chosen: Attack, most: int = 200) -> Measure:
    """Accuracy under attacks, keyed by norm, size and steps."""

    def measure(run: Trained) -> Values:
        x, y = images_of(run, most)
        batches = [(a.float() / 255, b) for a, b in zip(x.split(100), y.split(100), strict=True)]
        found: Values = {}
        made = [replace(attack, steps=run.at_most(attack.steps)) for attack in chosen]
        for attack, one in zip(chosen, under_attack(run.model, batches, made), strict=True):
            name = attack_key(attack)
            worst = WORST if WORST in one.accuracy else next(iter(rules_for(run.model)))
            found["clean"] = one.clean
            found[name] = one.accuracy[worst]
            found[f"{name}_uniform"] = one.accuracy[UNIFORM]
            found[f"{name}_signs"] = one.accuracy[SIGNS]
        return found

    return measure


def certificates(
    radii: tuple[float, ...], *, most: int, steps: int | None = None, attacked: int | None = None
) -> Measure:
    """What is proved of the model, the largest stretch found from image to logits, and certified
    accuracy on the first images; with `steps` also what attacks of so many leave, of all these or
    of the first `attacked`. What is infinite is left out."""
    modulus = "modulus of strong monotonicity, worst layer"

    def measure(run: Trained) -> Values:
        x, y = images_of(run, most)
        x = x.float() / 255
        exact = precise(run.model)
        cert = certificate(exact)
        claims = {claim.name: float(claim.value) for claim in cert.claims}
        radius = exact_radius(exact, x, y)
        torch.manual_seed(run.recipe.seed)
        found: Values = {
            "clean": float((radius > 0).double().mean()),
            "unique": float(cert.unique),
            "contraction": cert.contraction,
            "modulus": claims.get(modulus, math.inf),
            "lipschitz": cert.lipschitz,
            "stretch": float(stretch(exact, x[:16].double(), rounds=run.at_most(20)).max()),
        }
        for r in radii:
            found[f"certified_{r:g}"] = float((radius >= r).double().mean())
        if steps is not None:
            few = slice(attacked)
            held = survivors(run.model, x[few], y[few], radii, steps=run.at_most(steps))
            found |= {
                f"attacked_{r:g}": float(alive.double().mean())
                for r, alive in zip(radii, held, strict=True)
            }
        return {k: v for k, v in found.items() if isinstance(v, list) or math.isfinite(v)}

    return measure


def attack_key(attack: Attack) -> str:
    """How `attacks` names a figure."""
    return f"{attack.norm}_{attack.epsilon:.4g}_{attack.steps}"


def reconstruction(sizes: tuple[float, ...]) -> Measure:
    """Accuracy with features moved along the reconstructed perturbation, and under noise."""

    def measure(run: Trained) -> Values:
        assert isinstance(run.model, Classifier)
        x, y = images_of(run, 500)
        torch.manual_seed(run.recipe.seed)
        found = under_reconstruction(run.model, x.float() / 255, y, sizes)
        keys = {RECONSTRUCTED: "reconstructed", UNIFORM_FEATURES: "uniform", BINOMIAL: "binomial"}
        values: Values = {keys[name]: list(curve) for name, curve in found.items()}
        values |= {f"{keys[name]}_largest": curve[-1] for name, curve in found.items()}
        return values

    return measure


def solving(steps: int) -> Measure:
    """Residuals over so many evaluations of the map by Anderson's method and by plain iteration,
    and the steps that a residual of 1e-4 takes."""

    def measure(run: Trained) -> Values:
        assert isinstance(run.model, Classifier)
        x = images_of(run, 64)[0].float() / 255
        most = run.at_most(steps)
        first = convergence(run.model, x, steps=most)[0]
        second = convergence(run.model, x, solver=plain(most))[0]
        found: Values = {
            "residual": first.median,
            "residual_high": first.high,
            "plain_residual": second.median,
            "last_residual": first.median[-1],
            "last_plain_residual": second.median[-1],
            "steps_to_1e-4": mean_steps(run.model, x, most=run.at_most(200)),
        }
        if first.objective is not None:
            found["objective"] = first.objective
        return found

    return measure


def correlation(run: Trained) -> Values:
    """Correlations between channels of neighbouring branches."""
    x = images_of(run, 100)[0].float() / 255
    found = correlations(run.model, x)
    return {
        "heritage": float(found.heritage.mean()),
        "diversity": float(found.diversity.mean()),
        "contrast": found.contrast,
        "matrix": found.matrix.tolist(),
        "heritage_samples": found.heritage.tolist(),
        "diversity_samples": found.diversity.tolist(),
    }


def cost(run: Trained) -> Values:
    """Speed and memory with the model's own gradient rule."""
    x, y = images_of(run, 32)
    seconds = 3.0 if run.limit is None else 0.0
    found = efficiency(run.model, x.float() / 255, y, {"own": None}, seconds=seconds)["own"]
    return {
        "forward_images_s": found.forward,
        "training_images_s": found.training,
        "kept_mb": found.kept,
    }


def own_residual(run: Trained) -> Values:
    """The relative residual |z - T(z)| / |T(z)| that the model's own way of solving leaves."""
    x = images_of(run, 200)[0].float() / 255
    with torch.no_grad():
        solutions = run.model.run(x).solutions
    residual = torch.cat([s.residual.double() for s in solutions])
    return {"relative_residual": float(residual.mean())}


def feature_norms(run: Trained) -> Values:
    """Means of |z| and z^2 over all entries of the equilibria."""
    x = images_of(run, 200)[0].float() / 255
    with torch.no_grad():
        states = [s.state for s in run.model.run(x).solutions]
    if not states:
        return {}  # An explicit net.
    flat = torch.cat([s.flatten() for s in states if isinstance(s, Tensor)]).double()
    return {"mean_abs": float(flat.abs().mean()), "mean_square": float(flat.square().mean())}


def maps(count: int) -> Measure:
    """Grad-CAM on the equilibrium, GEQ's gates, and how much of the map lies on the object, which
    on data with a dark background is where pixels are bright."""

    def measure(run: Trained) -> Values:
        x = images_of(run, 200)[0].float() / 255
        cams = grad_cam(run.model, x)
        bright = x.mean(1)
        masks = bright > bright.flatten(1).mean(1).view(-1, 1, 1)
        found: Values = {
            "share": float(share_inside(cams, masks).mean()),
            "area": float((cams > 0.5).double().mean()),
            "images": x[:count].tolist(),
            "cams": cams[:count].tolist(),
        }
        gates = gate_map(run.model, x)
        if gates is not None:
            found["gates"] = gates[:count].tolist()
            found["gate_share"] = float(share_inside(gates, masks).mean())
        return found

    return measure


def segmentation(count: int) -> Measure:
    """mIoU, mAcc, aAcc, and predictions beside the truth."""

    def measure(run: Trained) -> Values:
        figures = on_test_images(run.model, run.data, run.limit).figures()
        x, y = images_of(run, count)
        with torch.no_grad():
            predicted = run.model(x.float() / 255).argmax(1)
        return {
            "mean_iou": figures["mean_iou"],
            "mean_accuracy": figures["mean_accuracy"],
            "accuracy": figures["accuracy"],
            "images": torch.round(_thinned(x).double() / 255, decimals=3).tolist(),
            "truth": _thinned(y).tolist(),
            "predicted": _thinned(predicted).tolist(),
        }

    return measure


def _thinned(pixels: Tensor) -> Tensor:
    """Every so many rows and columns, as many as a picture on a page can show."""
    every = math.ceil(max(pixels.shape[-2:]) / _SHOWN)
    return pixels[..., ::every, ::every]
