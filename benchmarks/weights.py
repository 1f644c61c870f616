"""Train the models whose weights come with the library, and write their cards.

python benchmarks/weights.py --runs runs/weights
python benchmarks/weights.py proximal_digits
"""

from __future__ import annotations

import argparse
import shutil
import warnings
from pathlib import Path

import opteq
from opteq.errors import DataWarning
from opteq.models.card import card

HOME = Path(opteq.__file__).parent / "weights"
RECIPES = ("geq_digits", "mopteq_digits", "geq_digits_certified", "proximal_digits")
RADII = (0.1, 0.25, 0.5, 1.0)


def figures(run: Path) -> list[str]:
    """Measured on all 360 test images; attacks and certificates on 200."""
    found = opteq.evaluate(run, suites=("accuracy",))
    robust = opteq.certify(run, radii=RADII, limit=200).robust
    assert robust is not None
    shown = ("accuracy", "loss", "solver steps", "not converged")
    names = [(name, value) for name, value in found.lines() if name in shown]
    rows = [f"| {name} | {value} |" for name, value in names]
    for radius, sure, attacked in zip(RADII, robust.certified, robust.attacked, strict=True):
        rows.append(
            f"| within {radius:g} (2-norm): certified / under attack | {100 * sure:.1f}% / "
            f"{100 * attacked:.1f}% |"
        )
    return ["| test images of the bundled digits | |", "|---|---|", *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", default=RECIPES)
    parser.add_argument("--runs", type=Path, default=Path("runs/weights"))
    options = parser.parse_args()
    runs, unknown = options.runs, set(options.recipes) - set(RECIPES)
    if unknown:
        parser.error(f"no weights come with the library for {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore", DataWarning)
    for recipe in options.recipes:
        run = runs / recipe
        if not (run / "report.html").is_file():
            opteq.train(recipe, run_dir=run)
        target = HOME / recipe
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / "best.safetensors", target / "best.safetensors")
        model = opteq.load(target)
        assert model.origin is not None
        # The card of the model is about its usual options.
        usual = ("# ", "- **Parameters**", "- **Settings**")
        lines = [
            f"# {recipe}",
            *(
                line
                for line in card(model.origin["name"]).splitlines()
                if not line.startswith(usual)
            ),
            f"- **Options**: {', '.join(f'{k}={v}' for k, v in model.origin['options'].items())}",
        ]
        lines += [
            "",
            "## These weights",
            "",
            f'`opteq.create_model("{recipe}", pretrained=True)`: {model.count_parameters():,} '
            f"parameters, trained by `opteq train {recipe}` with seed 0.",
            "",
            *figures(run),
        ]
        (target / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{recipe}: {target}")


if __name__ == "__main__":
    main()
