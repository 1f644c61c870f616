"""What was measured after the training: pictures that evaluations left in the folder of a run."""

from __future__ import annotations

from pathlib import Path

from opteq.report.page import embedded

# In the order in which they are shown, each with what it says.
_WORDS = {
    "evaluate/reliability": (
        "Calibration",
        "How often predictions of a given confidence are right. On the diagonal, 80% confidence "
        "means that 80 of 100 such predictions are right; below it the model is too sure.",
    ),
    "certify/accuracy": (
        "Certified, and under attack",
        "The accuracy that is left when every image may be changed by so much (2-norm, pixels in "
        "[0, 1]): proved from below, and found by attacks from above. The truth lies between.",
    ),
    "evaluate/attack": (
        "Under attack",
        "The accuracy that attacks of growing size leave, beside noise of the same size.",
    ),
    "evaluate/corruption": (
        "Damaged images",
        "The accuracy on test images with noise, blur, weather and compression, by severity.",
    ),
    "evaluate/saliency": (
        "What predictions rest on",
        "Bright regions raise the predicted class (Grad-CAM, at the equilibrium and at what is "
        "injected into it), bright pixels change it most (gradient). The gates of the Gaussian "
        "kernel are bright where they are open.",
    ),
    "evaluate/residual": (
        "How solves converge",
        "The relative residual at each evaluation of the map, the median over images: by the "
        "model's solver and by plain steps.",
    ),
    "evaluate/objective": (
        "How the hidden objective falls",
        "Its distance from its final value at each evaluation of the map.",
    ),
}


def measured_later(run: Path) -> list[tuple[str, str, str]]:
    """(title, words, picture) for each picture in the folder; pictures as data, so that the page
    needs nothing else."""
    found = []
    known = [*_WORDS, *sorted(_others(run))]
    for name in known:
        path = run / f"{name}.png"
        if path.is_file():
            kind = _WORDS.get(name) or _WORDS.get(name.split("-")[0])  # attack-l2 and attack-linf
            title, words = kind or (Path(name).name.replace("_", " "), "")
            found.append((title, words, embedded(path.read_bytes())))
    return found


def _others(run: Path) -> set[str]:
    names = {f"evaluate/{path.stem}" for path in (run / "evaluate").glob("*.png")}
    return names - set(_WORDS)
