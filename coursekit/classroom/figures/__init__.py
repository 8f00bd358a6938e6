"""Pictures in one visual language; the only folder that needs matplotlib.

`style` holds colors and sizes, `shapes` what several figures are made of; the
other modules draw.  A function that draws returns axes: end the cell with a
semicolon, or give them a name, and the notebook does not print them.
"""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from coursekit.classroom.figures.attention import (
    attention_flow,
    attention_steps,
    projections,
)
from coursekit.classroom.figures.charts import (
    bars,
    curves,
    heatmap,
    intervals,
    ladder,
)
from coursekit.classroom.figures.positions import (
    clocks,
)
from coursekit.classroom.figures.style import (
    COLORS,
    ROLES,
    WIDTH,
    mosaic,
    new_figure,
    png,
    use_style,
)
from coursekit.classroom.figures.tokens import (
    pipeline,
    token_cuts,
    token_rows,
    who_sees_whom,
)
from coursekit.classroom.figures.vector import svg

__all__ = [
    "COLORS",
    "ROLES",
    "WIDTH",
    "Rectangle",
    "attention_flow",
    "attention_steps",
    "bars",
    "clocks",
    "curves",
    "heatmap",
    "intervals",
    "ladder",
    "mosaic",
    "new_figure",
    "pipeline",
    "plt",
    "png",
    "projections",
    "svg",
    "token_cuts",
    "token_rows",
    "use_style",
    "who_sees_whom",
]
