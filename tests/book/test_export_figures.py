"""Figures for slides: a page's figures under the names that it gives them."""

import importlib.util
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A page

```{code-cell} ipython3
---
mystnb:
  figure:
    name: fig-line
    caption: A line.
---
from coursekit_classroom import figures

figure, (axis,) = figures.new_figure()
axis.plot([1, 2])
figure
```

```{code-cell} ipython3
figure
```
"""


def test_named_figures_become_svg(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "sphinx_ext")
    spec = importlib.util.spec_from_file_location(
        "figures", ROOT / "sphinx_ext" / "figures.py"
    )
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    shutil.copy(ROOT / "_config.yml", tmp_path)
    (tmp_path / "page.md").write_text(PAGE)
    (path,) = figures.draw(tmp_path, "page")
    assert path == tmp_path / "_build" / "figures" / "page" / "fig-line.svg"
    assert path.read_text("utf8").startswith("<?xml")
    assert "<svg" in path.read_text("utf8")
    # A program for slides knows no style sheet of ours.
    assert "#0072b2" in path.read_text("utf8")
    assert "var(" not in path.read_text("utf8")
    sys.modules.pop("notebooks", None)
