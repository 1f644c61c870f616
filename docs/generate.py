"""Write docs/reference from the code: public names, keys of recipes, models.

python docs/generate.py
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import textwrap
from pathlib import Path
from typing import Any, get_args

from opteq.cli.show import facts
from opteq.files import write_atomically
from opteq.models.registry import entry, is_own, list_models
from opteq.settings import Settings
from opteq.training.recipe import Recipe
from opteq.training.recipe_files import OF_ITS_OWN

TARGET = Path(__file__).parent / "reference"
# What a user imports, in the order in which one meets it.
MODULES = (
    "opteq",
    "opteq.problem",
    "opteq.kernels",
    "opteq.penalties",
    "opteq.potentials",
    "opteq.operators",
    "opteq.equilibrium",
    "opteq.solve",
    "opteq.gradient",
    "opteq.context",
    "opteq.theory",
    "opteq.data",
    "opteq.attacks",
    "opteq.evaluation.adaptive",
    "opteq.evaluation.solvers",
)


def pages() -> dict[str, str]:
    """The pages by name."""
    return {"api.md": _api(), "recipes.md": _recipes(), "models.md": _models()}


def main() -> None:
    for name, text in pages().items():
        write_atomically(TARGET / name, text.encode())


def _api() -> str:
    lines = ["# Public names", ""]
    lines += ["Whatever is not on this page may change without notice.", ""]
    for module in (importlib.import_module(name) for name in MODULES):
        lines += [f"## {module.__name__}", "", *_prose(module), ""]
        for name in _public(module):
            lines += [*_described(module, name), ""]
    return "\n".join(lines).rstrip() + "\n"


def _public(module: Any) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is None:
        own = vars(module).items()
        listed = [n for n, v in own if getattr(v, "__module__", "") == module.__name__]
    return sorted(
        (name for name in listed if not name.startswith("_") and callable(getattr(module, name))),
        key=str.casefold,
    )


def _described(module: Any, name: str) -> list[str]:
    thing = getattr(module, name)
    lines = [f"### {name}", "", "```python", f"{name}{_signature(thing)}", "```", ""]
    return [*lines, *_prose(thing)]


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    shown, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown, starred = [*shown, "*"], True
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        shown.append(_parameter(parameter))
    end = signature.return_annotation
    arrow = "" if end is signature.empty or inspect.isclass(thing) else f" -> {_annotation(end)}"
    line = f"({', '.join(shown)}){arrow}"
    return (
        line if len(line) < 80 else "\n".join(["(", *(f"    {one}," for one in shown), f"){arrow}"])
    )


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    default = parameter.default
    if default is parameter.empty:
        return text
    if callable(default):
        return f"{text} = ..."
    return f"{text} = {str(default) if isinstance(default, Path) else repr(default)}"


def _annotation(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _prose(thing: Any) -> list[str]:
    """A docstring without its examples, which are run where they are written."""
    text = inspect.getdoc(thing) or ""
    blocks = [part for part in text.split("\n\n") if not part.lstrip().startswith(">>>")]
    if blocks and blocks[0].startswith((f"{getattr(thing, '__name__', '')}(",)):
        return []  # what dataclass writes
    return [line.replace("<", "&lt;") for line in "\n\n".join(blocks).splitlines()]


def _recipes() -> str:
    lines = ["# Keys of recipes", ""]
    lines += ["A recipe is a YAML file with these keys; `--set KEY=VALUE` changes one of them.", ""]
    lines += [
        "A file may also say `extends: NAME`, and only what is its own: every other key is that of",
        "NAME, a file beside it, a recipe by name or a protocol. Not inherited are",
        f"{', '.join(f'`{key}`' for key in OF_ITS_OWN)}.",
        "",
    ]
    _group(Recipe, "", lines)
    return "\n".join(lines).rstrip() + "\n"


def _group(kind: type[Settings], prefix: str, lines: list[str]) -> None:
    explained = _explanations(kind)
    rows, below = [], []
    for name, field in kind.model_fields.items():
        inner = _settings_in(field.annotation)
        if inner is not None:
            below.append((inner, f"{prefix}{name}."))
            continue
        default = "needed" if field.is_required() else _value(field)
        rows.append((f"`{prefix}{name}`", default, explained.get(name, "")))
    if prefix:
        lines += [f"## {prefix[:-1]}", "", *_prose(kind), ""]
    if rows:
        lines += ["| key | default | |", "|---|---|---|"]
        lines += [f"| {key} | {default} | {text} |" for key, default, text in rows]
        lines.append("")
    for inner, where in below:
        _group(inner, where, lines)


def _settings_in(annotation: Any) -> type[Settings] | None:
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Settings):
            return kind
    return None


def _value(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    return "-" if value in (None, (), {}) else f"`{value}`"


def _explanations(kind: type[Settings]) -> dict[str, str]:
    """What is written below each key."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    written = tree.body[0]
    assert isinstance(written, ast.ClassDef)
    body = written.body
    found = {}
    for one, following in itertools.pairwise(body):
        named = isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if named and isinstance(following, ast.Expr):
            text = ast.literal_eval(following.value)
            found[one.target.id] = " ".join(text.split()).replace("|", "\\|")
    return found


def _models() -> str:
    lines = ["# Models", ""]
    lines += [
        "`opteq.create_model(NAME, OPTION=VALUE)`, or `model: {name: NAME, options: ...}`.",
        "",
    ]
    builders: dict[str, list[str]] = {}
    for name in list_models():
        if is_own(name):
            continue
        builders.setdefault(str(entry(name).builder), []).append(name)
    for names in builders.values():
        lines += [f"## {names[0]}", ""]
        lines += [f"- `{name}`: {entry(name).summary}" for name in names]
        lines += ["", f"| option | in {names[0]} |", "|---|---|"]
        options = facts(names[0])["options, as model.options.NAME in recipes"]
        lines += [f"| `{key}` | {_cell(value)} |" for key, value in options.items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _cell(value: Any) -> str:
    shown, _, kind = str(value).partition("  (")
    words = f"`{shown}`" + (f" ({kind}" if kind else "")
    return words.replace("|", "\\|")


if __name__ == "__main__":
    main()
