"""Pictures in one visual language; the only folder that needs matplotlib.

`style` holds colors and sizes, `shapes` what several figures are made of; the
other modules draw.  A function that draws returns axes: end the cell with a
semicolon, or give them a name, and the notebook does not print them.
"""

# Pages draw with these.
import matplotlib.pyplot as plt  # noqa: F401
from matplotlib.patches import Rectangle  # noqa: F401

from coursekit.classroom.figures.attention import (
    attention_flow,
    attention_steps,
    projections,
)
from coursekit.classroom.figures.charts import (
    bars,
    curves,
    intervals,
    ladder,
)
from coursekit.classroom.figures.circuits import (
    bar_panels,
    induction_path,
    lens_rows,
    patched_stream,
)
from coursekit.classroom.figures.embedding import (
    id_neighbors,
    lookup,
    one_hot_product,
    unembedding,
)
from coursekit.classroom.figures.feedforward import (
    between_and_within,
    hidden_units,
    matrix_areas,
    two_classes,
    unit_memory,
)
from coursekit.classroom.figures.heads import (
    heads_added,
    mixtures,
    remaining,
    split_and_merge,
    sum_over_heads,
)
from coursekit.classroom.figures.losses import (
    logit_pushes,
    seed_dots,
    stable_rows,
    surprise_boxes,
)
from coursekit.classroom.figures.maps import (
    heatmap,
)
from coursekit.classroom.figures.masks import (
    mask_effect,
    prefixes,
    verdicts,
)
from coursekit.classroom.figures.merges import (
    learned_merges,
    replayed_merges,
)
from coursekit.classroom.figures.norms import (
    Part,
    norm_places,
    norm_steps,
    residual_stream,
)
from coursekit.classroom.figures.order import (
    added_positions,
    bag_of_vectors,
    position_rows,
    read_map,
    turned_back,
)
from coursekit.classroom.figures.positions import (
    clocks,
)
from coursekit.classroom.figures.probing import (
    changed_token,
    checklist,
    oracle_bars,
    two_losses,
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
from coursekit.classroom.figures.vector import (
    CELLS,
    encode,
    svg,
)
from coursekit.classroom.figures.vectors import (
    low_rank,
    neighbor_lists,
    paths,
)

__all__ = [
    "CELLS",
    "COLORS",
    "ROLES",
    "WIDTH",
    "Part",
    "added_positions",
    "attention_flow",
    "attention_steps",
    "bag_of_vectors",
    "bar_panels",
    "bars",
    "between_and_within",
    "changed_token",
    "checklist",
    "clocks",
    "curves",
    "encode",
    "heads_added",
    "heatmap",
    "hidden_units",
    "id_neighbors",
    "induction_path",
    "intervals",
    "ladder",
    "learned_merges",
    "lens_rows",
    "logit_pushes",
    "lookup",
    "low_rank",
    "mask_effect",
    "matrix_areas",
    "mixtures",
    "mosaic",
    "neighbor_lists",
    "new_figure",
    "norm_places",
    "norm_steps",
    "one_hot_product",
    "oracle_bars",
    "patched_stream",
    "paths",
    "pipeline",
    "png",
    "position_rows",
    "prefixes",
    "projections",
    "read_map",
    "remaining",
    "replayed_merges",
    "residual_stream",
    "seed_dots",
    "split_and_merge",
    "stable_rows",
    "sum_over_heads",
    "surprise_boxes",
    "svg",
    "token_cuts",
    "token_rows",
    "turned_back",
    "two_classes",
    "two_losses",
    "unembedding",
    "unit_memory",
    "use_style",
    "verdicts",
    "who_sees_whom",
]
