"""The page of the explorer, by gradio."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from opteq.errors import DataError, OpteqError, OptionError
from opteq.evaluation.explain import Explanation, explain
from opteq.evaluation.explore import Damage, Handling, damaged, drawn, handled
from opteq.evaluation.predict import read_for
from opteq.layer import equilibria
from opteq.models.network import Network
from opteq.options import extra
from opteq.report.explanation import draw_course, draw_maps
from opteq.report.page import png
from opteq.theory.robustness import predicted_radius

AS_TRAINED = "as trained"
SOLVERS = {
    AS_TRAINED: None,
    "Picard": "picard",
    "Anderson": "anderson",
    "Broyden": "broyden",
    "forward-backward": "forward_backward",
}
GAMMAS = {
    AS_TRAINED: 1.0,
    **{f"a {word}": 1 / n for n, word in ((8, "eighth"), (4, "quarter"), (2, "half"))},
    **{f"{n} times": float(n) for n in (2, 4, 8)},
}
TOLERANCES = {AS_TRAINED: None, **{f"1e-{n}": 10.0**-n for n in range(1, 7)}}
# Uploads above this are refused before they are read.
_LARGEST_UPLOAD = "10mb"
# How large test images are shown at least.
_SIDE = 96
# How many models are kept, changes of how they are solved included.
_KEPT = 8
_TEST, _DRAWN, _FILE = "a test image", "a drawing", "a file"


@dataclass(frozen=True)
class Explored:
    """The models on the page and the images to pick from."""

    models: dict[str, Network]
    images: Tensor
    """(count, channels, height, width) in [0, 1]; none where the data are not there."""
    labels: list[str]
    missing: str = ""
    """Why there are none."""
    prepared: dict[tuple[str, Handling], Network] = field(default_factory=dict, repr=False)
    """Models that are solved otherwise, the last few of them; they keep what certificates need."""

    def solved(self, name: str, handling: Handling) -> Network:
        """A model that is solved as asked."""
        found = self.prepared.pop((name, handling), None)
        if found is None:
            found = handled(self.models[name], handling)
        self.prepared[name, handling] = found
        while len(self.prepared) > _KEPT:
            del self.prepared[next(iter(self.prepared))]
        return found

    @property
    def first(self) -> Network:
        return next(iter(self.models.values()))


def serve(explored: Explored, *, host: str, port: int | None, browser: bool, block: bool) -> Any:
    """Serve the page; it is returned at once unless `block`."""
    with extra("explore", "The explorer"):
        import gradio
        from gradio.themes import Default
    page = _built(gradio, explored)
    try:
        page.launch(
            server_name=host,
            server_port=port,
            inbrowser=browser,
            prevent_thread_lock=not block,
            share=False,
            quiet=True,
            ssr_mode=False,
            max_file_size=_LARGEST_UPLOAD,
            footer_links=[],
            theme=Default(
                primary_hue="cyan", font=["system-ui", "sans-serif"], font_mono=["monospace"]
            ),
            css=_CSS,
        )
    except OSError as error:
        where = f"at port {port}" if port else "at any of the usual ports"
        raise OptionError(f"{host} cannot be used {where}.", "Give another port.") from error
    return page


def answer(model: Network, x: Tensor, damage: Damage) -> Explanation:
    """What a model makes of a damaged image."""
    x = damaged(model, x, damage)
    radius = predicted_radius(model, x[None])
    return explain(model, x, radius=None if radius is None else float(radius))


def _built(gradio: Any, explored: Explored) -> Any:
    """Images on the left, answers on the right."""
    title = " and ".join(explored.models)
    solves = any(equilibria(model) for model in explored.models.values())
    with gradio.Blocks(title=f"opteq: {title}", analytics_enabled=False, fill_width=True) as page:
        gradio.Markdown(f"## {_escaped(title)}\nChange the image, or how it is solved.")
        status = gradio.Markdown(elem_id="status")
        with gradio.Row():
            with gradio.Column(scale=1, min_width=320):
                source, chosen, canvas, upload = _sources(gradio, explored)
                knobs = _knobs(gradio, solves)
            alone = len(explored.models) == 1
            answers = [
                _answer(gradio, i, "" if alone else n) for i, n in enumerate(explored.models)
            ]
        outputs = [part for parts in answers for part in parts] + [status]

        def show(source: str, chosen: int, canvas: Any, upload: str | None, *values: Any) -> list:
            return _shown(explored, source, chosen, canvas, upload, values)

        inputs = [source, chosen, canvas, upload, *knobs]
        gradio.on(
            [page.load, *(part.change for part in inputs)],
            show,
            inputs,
            outputs,
            show_progress="minimal",
            trigger_mode="always_last",
        )
    return page


def _sources(gradio: Any, explored: Explored) -> tuple[Any, Any, Any, Any]:
    """Where the image comes from."""
    choices = [_TEST, _DRAWN, _FILE] if len(explored.images) else [_DRAWN, _FILE]
    source = gradio.Radio(choices, value=choices[0], label="Image", elem_id="source")
    chosen = gradio.State(0)
    gallery = gradio.Gallery(
        [
            (_picture(image), label)
            for image, label in zip(explored.images, explored.labels, strict=True)
        ],
        columns=4,
        height=260,
        object_fit="contain",
        allow_preview=False,
        show_label=False,
        buttons=[],
        label="Test images",
        visible=choices[0] == _TEST,
        elem_id="gallery",
    )
    canvas = gradio.Sketchpad(
        show_label=False,
        type="numpy",
        image_mode="RGB",
        canvas_size=(280, 280),
        fixed_canvas=True,
        layers=False,
        transforms=(),
        brush=gradio.Brush(default_size=22, colors=["#000000"], color_mode="fixed"),
        visible=choices[0] == _DRAWN,
        elem_id="canvas",
    )
    upload = gradio.File(
        label="An image file", type="filepath", visible=False, elem_id="upload", height=140
    )
    if explored.missing:
        gradio.Markdown(f"No test images: {_escaped(explored.missing)}")

    def pick(event: Any) -> int:
        return int(event.index)

    pick.__annotations__["event"] = gradio.SelectData
    gallery.select(pick, None, chosen, show_progress="hidden")
    source.change(
        lambda where: [gradio.update(visible=where == place) for place in (_TEST, _DRAWN, _FILE)],
        source,
        [gallery, canvas, upload],
        show_progress="hidden",
    ).then(None, js=_TAKE_BRUSH)
    return source, chosen, canvas, upload


def _knobs(gradio: Any, solves: bool) -> list[Any]:
    """In the order in which `_shown` reads them."""
    with gradio.Accordion("Damage", open=True):
        damage = [
            gradio.Slider(0, 3, 0, step=0.1, label="Blur, pixels", elem_id="blur"),
            gradio.Slider(0, 1, 0, step=0.02, label="Noise", elem_id="noise"),
            gradio.Slider(0, 0.9, 0, step=0.05, label="Hidden square, share of the side"),
            gradio.Slider(
                0, 0.3, 0, step=0.01, label="Adversarial step, per pixel", elem_id="attack"
            ),
        ]
    with gradio.Accordion("How it is solved", open=solves, visible=solves):
        handling = [
            gradio.Dropdown(list(GAMMAS), value=AS_TRAINED, label="gamma", elem_id="gamma"),
            gradio.Dropdown(list(SOLVERS), value=AS_TRAINED, label="Solver", elem_id="solver"),
            gradio.Dropdown(list(TOLERANCES), value=AS_TRAINED, label="Tolerance"),
            gradio.Slider(
                0, 25, 0, step=1, label="Stop after plain steps (0: solve)", elem_id="steps"
            ),
        ]
    return [*damage, *handling]


def _answer(gradio: Any, place: int, name: str) -> list[Any]:
    with gradio.Column(scale=2 if name else 3, elem_classes="answer"):
        if name:
            gradio.Markdown(f"### {_escaped(name)}")
        return [
            gradio.Label(num_top_classes=3, show_label=False, elem_id=f"classes-{place}"),
            gradio.Markdown(elem_id=f"words-{place}"),
            gradio.Image(elem_id=f"maps-{place}", **_STILL),
            gradio.Image(elem_id=f"course-{place}", **_STILL),
        ]


def _shown(
    explored: Explored,
    source: str,
    chosen: int,
    canvas: Any,
    upload: str | None,
    values: Sequence[Any],
) -> list[Any]:
    """What every part of the page shows. A failure leaves them empty and says why."""
    blur, noise, hidden, attack, gamma, solver, tolerance, steps = values
    damage = Damage(float(blur), float(noise), float(hidden), float(attack))
    handling = Handling(GAMMAS[gamma], SOLVERS[solver], TOLERANCES[tolerance], int(steps) or None)
    try:
        image = _image(explored, source, chosen, canvas, upload)
        found = [answer(explored.solved(name, handling), image, damage) for name in explored.models]
    except OpteqError as error:
        return [None, "", None, None] * len(explored.models) + [f"**{_escaped(str(error))}**"]
    parts: list[Any] = []
    for each in found:
        words = "\n".join(f"- {_escaped(line)}" for line in each.words())
        chances = dict(each.classes)
        parts += [chances, words, _drawn(draw_maps(each)), _drawn(draw_course(each))]
    return [*parts, ""]


def _image(explored: Explored, source: str, chosen: int, canvas: Any, upload: str | None) -> Tensor:
    model = explored.first
    if source == _TEST:
        return explored.images[chosen]
    if source == _DRAWN:
        board = None if canvas is None else canvas.get("composite")
        if board is None:
            raise DataError("Nothing is drawn yet.", "Draw on the canvas.")
        return drawn(model, board)
    if upload is None:
        raise DataError("There is no file yet.", "Drop an image file on the field.")
    try:
        return read_for(model, Path(upload))
    except DataError:
        raise DataError(
            f"{Path(upload).name} is not an image that can be read.", "Give a PNG or JPEG file."
        ) from None


def _picture(image: Tensor) -> np.ndarray:
    """An image in bytes, its pixels made large enough to be seen."""
    times = max(1, -(-_SIDE // min(image.shape[1:])))
    bytes_ = (255 * image).round().byte().cpu().permute(1, 2, 0).numpy()
    if bytes_.shape[2] == 1:
        bytes_ = bytes_.repeat(3, axis=2)
    return bytes_.repeat(times, axis=0).repeat(times, axis=1)


def _drawn(figure: Any) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png(figure, dpi=120))).convert("RGB"))


def _escaped(text: str) -> str:
    """Text as it is written: Markdown would read some of it as marks."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#$|" else c for c in text)


_STILL = {
    "interactive": False,
    "show_label": False,
    "buttons": ["fullscreen"],
    "format": "png",
}
_CSS = """
.answer {min-width: min(420px, 100%) !important}
#status {color: #b3261e}
#gallery .grid-container {grid-template-columns: repeat(4, minmax(0, 1fr)) !important}
#gallery .thumbnail-item {width: 100% !important; min-width: 0 !important; height: auto !important;
    aspect-ratio: auto !important; display: flex; flex-direction: column}
#gallery .thumbnail-item img {aspect-ratio: 1; height: auto}
#gallery .caption-label {position: static; max-width: none; width: 100%; padding: 1px 4px;
    border: 0; border-radius: 0; text-align: center}
"""
# gradio's canvas waits for a tool to be chosen; there is only one that a drawing starts with.
_TAKE_BRUSH = """() => {
    let tries = 0;
    const waiting = setInterval(() => {
        const brush = document.querySelector('#canvas [aria-label="Brush"]');
        if (brush) brush.click();
        if (brush || ++tries > 50) clearInterval(waiting);
    }, 100);
}"""
