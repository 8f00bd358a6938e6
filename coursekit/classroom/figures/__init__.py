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
from coursekit.classroom.figures.norms import (
    Part,
    norm_places,
    norm_steps,
    residual_stream,
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
    svg,
    use_style,
)
from coursekit.classroom.figures.tokens import (
    pipeline,
    token_cuts,
    token_rows,
    who_sees_whom,
)

__all__ = [
    "COLORS",
    "ROLES",
    "WIDTH",
    "Part",
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
    "norm_places",
    "norm_steps",
    "pipeline",
    "plt",
    "png",
    "projections",
    "residual_stream",
    "svg",
    "token_cuts",
    "token_rows",
    "use_style",
    "who_sees_whom",
]
