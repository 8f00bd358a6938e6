"""A live figure in a notebook: the reader types, and Python sets."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anywidget
import traitlets
from torch import nn

from coursekit.saved_models import load
from coursekit.tokenizer import Tokenizer
from coursekit_classroom.live import bundle, export

KINDS = (
    *("attention", "scores", "next-token", "beam", "translator", "bpe"),
    "temperature",
)
# A figure's element knows its model by name; the name holds a hash, so new
# weights have a new one. What Python changes makes a new element, but for the
# text, which goes into the box as if it was typed.
RENDER = """
export default {
  render({ model, el }) {
    let figure;
    const build = () => {
      const name = model.get("name");
      coursekitLive.receive(name, JSON.parse(model.get("fields")));
      const next = document.createElement(`live-${model.get("figure")}`);
      const given = {...model.get("options"), model: name,
        text: model.get("text")};
      for (const [key, value] of Object.entries(given))
        next.setAttribute(key, value);
      next.className = "live-figure";
      next.addEventListener("input", () => {
        model.set("text", next.text.input.value);
        model.save_changes();
      });
      if (figure) figure.replaceWith(next);
      else el.append(next);
      figure = next;
    };
    model.on("change:text", () => {
      const box = figure.text?.input;
      if (!box || box.value === model.get("text")) return;
      box.value = model.get("text");
      box.dispatchEvent(new Event("input", { bubbles: true }));
    });
    model.on("change:name", build); // comes after the fields
    model.on("change:options", build);
    build();
  },
};
"""


class LiveFigure(anywidget.AnyWidget):
    """A figure that both sides can change.

    ``text`` is what stands in its box. ``options`` are its settings, such as
    ``{"layer": 1}``.
    """

    _esm = bundle() + RENDER
    figure = traitlets.Enum(KINDS, "attention").tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    options = traitlets.Dict().tag(sync=True)
    fields = traitlets.Unicode().tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)

    def use(self, model: nn.Module, tokenizer: Tokenizer) -> None:
        """Show a model, or the same one after more training.

        Args:
            model: a GPT, an Encoder or a Transformer.
            tokenizer: of its text.
        """
        with TemporaryDirectory() as folder:
            kind = type(model).__name__
            path = export(model, tokenizer, folder, kind)
            call = Path(path).read_text("utf8")
        fields = json.loads(call[call.index(", ") + 2 : call.rindex(")")])
        with self.hold_sync():
            self.fields, self.name = json.dumps(fields), path.stem


def show(
    model: str | nn.Module,
    text: str = "",
    figure: str = "attention",
    tokenizer: Tokenizer | None = None,
    **options: float | int | bool,
) -> LiveFigure:
    """Show a live figure of a model in a notebook.

    It follows both sides: what is typed is its ``text`` here, and a ``text``
    or ``options`` set here are shown there. ``use(model, tokenizer)`` shows
    the model again after more training.

    Args:
        model: a name for :func:`coursekit.load`, or a model.
        text: what it is shown on.
        figure: attention, scores, next-token, beam, translator, bpe or
            temperature.
        tokenizer: of the model, if it is not a name.
        options: as of the book's figures: layer, head, beams, ...

    Returns:
        The widget, which a notebook draws when it ends a cell.

    Raises:
        ValueError: if there is no such model or figure, or the model has no
            tokenizer.
    """
    if figure not in KINDS:
        raise ValueError(
            f"a figure must be one of {', '.join(KINDS)}: got {figure!r}."
        )
    if isinstance(model, str):
        module, tokenizer = load(model)
    else:
        module = model
    if tokenizer is None:
        raise ValueError(
            "a figure needs the model's tokenizer: got none. Pass the one "
            "that the model was trained with."
        )
    made: Any = LiveFigure(figure=figure, text=text, options=options)
    made.use(module, tokenizer)
    return made
