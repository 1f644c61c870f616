"""Pages that open anywhere, without a network: styles and figures are inside."""

from __future__ import annotations

import base64
import io
import warnings
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opteq.files import make_folder, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, ACCENT, SECOND, THIRD = "#1c2733", "#6b7785", "#0b6e99", "#d9730d", "#448361"
# Of lines and bars, in the order in which they are used.
COLOURS = (ACCENT, SECOND, THIRD, "#8a4fb3", "#b3364f", MUTED, "#b59b00", "#00897b")


def render(template: str, target: Path, **values: Any) -> None:
    """Fill a template of this package and write the page."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape

    folder = resources.files("opteq.report") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(template).render(**values)
    write_atomically(target, page.encode())


def new_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    """A figure in the style of the pages, and its axes as an array of rows and columns."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, axes


def as_written(text: str) -> str:
    """A name shown literally: matplotlib reads text between dollar signs as a formula."""
    return text.replace("$", r"\$")


def svg(figure: Figure) -> Any:
    """A figure as part of a page."""
    from markupsafe import Markup
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "opteq"}):
        _arrange(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return Markup(text[text.index("<svg") :])


def png(figure: Figure, dpi: int = 140, title: str = "") -> bytes:
    """A figure as the content of a file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Names of files and classes may have letters that the font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        _arrange(figure)
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Title": title} if title else None)
    return buffer.getvalue()


def write_png(figure: Figure, path: Path, title: str = "") -> None:
    """Write a figure into a file, whose folder is made if it is not there."""
    make_folder(path.parent)
    write_atomically(path, png(figure, title=title))


def embedded(content: bytes) -> str:
    """A PNG file as the source of an image, inside the page."""
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def logarithmic(axis: Any) -> None:
    """Make one axis (`axes.yaxis`) logarithmic, with plain numbers at powers of ten, or also at 2
    and 5 where there are few of these. To be called when everything is drawn."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    set_scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    set_scale("log")
    low, high = sorted(axis.get_view_interval())
    few = high < 50 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))


def _plain(value: float) -> str:
    if 1e-3 <= value < 1e5:
        return f"{value:g}"
    digits, power = f"{value:.0e}".split("e")
    return f"{digits}e{int(power)}"


def _arrange(figure: Figure) -> None:
    """Lay a figure out once: matplotlib would draw all of it for that."""
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
        figure.set_layout_engine(None)


_STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.edgecolor": "#b8c0c8",
    "axes.labelcolor": MUTED,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e9ec",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}
