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
from coursekit.classroom.figures.feedforward import (
    between_and_within,
    hidden_units,
    matrix_areas,
    two_classes,
    unit_memory,
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
    "Rectangle",
    "attention_flow",
    "attention_steps",
    "bars",
    "between_and_within",
    "clocks",
    "curves",
    "heatmap",
    "hidden_units",
    "intervals",
    "ladder",
    "matrix_areas",
    "mosaic",
    "new_figure",
    "pipeline",
    "plt",
    "png",
    "projections",
    "svg",
    "token_cuts",
    "token_rows",
    "two_classes",
    "unit_memory",
    "use_style",
    "who_sees_whom",
]
