"""Pictures in one visual language; the only folder that needs matplotlib.

`style` holds colors and sizes, `shapes` what several figures are made of; the
other modules draw.  A function that draws returns axes: end the cell with a
semicolon, or give them a name, and the notebook does not print them.
"""

# Pages draw with these.
import matplotlib.pyplot as plt  # noqa: F401
from matplotlib.patches import Rectangle  # noqa: F401

from coursekit.classroom.figures.accuracy import (
    accuracy_dots,
    class_token_path,
)
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
from coursekit.classroom.figures.modern import (
    gated_units,
    head_groups,
    norms_compared,
    turned_pairs,
    two_designs,
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
from coursekit.classroom.figures.vision import (
    image_row,
    looked_at,
    patch_sequence,
    patch_vectors,
    pixel_cuts,
)
from coursekit.classroom.figures.windows import (
    rounded_weights,
    shares,
    window_reach,
)

__all__ = [
    "CELLS",
    "COLORS",
    "ROLES",
    "WIDTH",
    "Part",
    "accuracy_dots",
    "added_positions",
    "attention_flow",
    "attention_steps",
    "bag_of_vectors",
    "bar_panels",
    "bars",
    "between_and_within",
    "class_token_path",
    "clocks",
    "curves",
    "encode",
    "gated_units",
    "head_groups",
    "heads_added",
    "heatmap",
    "hidden_units",
    "id_neighbors",
    "image_row",
    "induction_path",
    "intervals",
    "ladder",
    "learned_merges",
    "lens_rows",
    "logit_pushes",
    "looked_at",
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
    "norms_compared",
    "one_hot_product",
    "patch_sequence",
    "patch_vectors",
    "patched_stream",
    "paths",
    "pipeline",
    "pixel_cuts",
    "png",
    "position_rows",
    "prefixes",
    "projections",
    "read_map",
    "remaining",
    "replayed_merges",
    "residual_stream",
    "rounded_weights",
    "seed_dots",
    "shares",
    "split_and_merge",
    "stable_rows",
    "sum_over_heads",
    "surprise_boxes",
    "svg",
    "token_cuts",
    "token_rows",
    "turned_back",
    "turned_pairs",
    "two_classes",
    "two_designs",
    "unembedding",
    "unit_memory",
    "use_style",
    "verdicts",
    "who_sees_whom",
    "window_reach",
]
