"""Pictures in one visual language; the only folder that needs matplotlib.

`style` holds colors and sizes, `shapes` what several figures are made of; the
other modules draw.  A function that draws returns axes: end the cell with a
semicolon, or give them a name, and the notebook does not print them.
"""

# ruff: noqa: F401  pages draw with these

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.accuracy import (
    accuracy_dots,
    class_token_path,
)
from coursekit_classroom.figures.alignment import (
    alignment,
    dependence,
    ngram_hits,
)
from coursekit_classroom.figures.attention import (
    attention_flow,
    attention_steps,
    projections,
    swap_meet,
)
from coursekit_classroom.figures.caches import (
    beam_tree,
    cache_steps,
    kept_vectors,
    key_changes,
    padded_prompts,
    times_less,
)
from coursekit_classroom.figures.charts import bars, curves, intervals, ladder
from coursekit_classroom.figures.chunks import running_softmax, tiles
from coursekit_classroom.figures.circuits import (
    bar_panels,
    induction_path,
    lens_rows,
    patched_stream,
)
from coursekit_classroom.figures.conventions import slices, weights_both_ways
from coursekit_classroom.figures.costs import (
    CostRow,
    cost_columns,
    loss_by_size,
    matrix_products,
    roofline,
    stacks,
)
from coursekit_classroom.figures.drafts import kept_and_redrawn, stored_row
from coursekit_classroom.figures.embedding import (
    id_neighbors,
    lookup,
    one_hot_product,
    unembedding,
)
from coursekit_classroom.figures.feedforward import (
    between_and_within,
    hidden_units,
    matrix_areas,
    two_classes,
    unit_memory,
)
from coursekit_classroom.figures.flow import nested, shape_flow
from coursekit_classroom.figures.gaps import (
    both_directions,
    fillings,
    gap_losses,
    objectives,
    reach,
    seen_at_gap,
)
from coursekit_classroom.figures.generation import (
    choices_made,
    kept_mass,
    sampled_words,
    tail_curves,
    temperature_bars,
)
from coursekit_classroom.figures.heads import (
    heads_added,
    mixtures,
    remaining,
    split_and_merge,
    sum_over_heads,
)
from coursekit_classroom.figures.inference import (
    Rounding,
    accepted_mass,
    cache_pages,
    drafted_rounds,
    rounding,
    slot_timeline,
)
from coursekit_classroom.figures.lists import block_lists
from coursekit_classroom.figures.losses import (
    logit_pushes,
    seed_dots,
    stable_rows,
    surprise_boxes,
)
from coursekit_classroom.figures.machines import model_cuts, pipeline_turns
from coursekit_classroom.figures.maps import heatmap
from coursekit_classroom.figures.masks import (
    causal_rows,
    mask_effect,
    padded_batch,
    prefixes,
    verdicts,
    window_and_prefix,
)
from coursekit_classroom.figures.merges import (
    learned_merges,
    learned_vocabulary,
    replayed_merges,
)
from coursekit_classroom.figures.modern import (
    block_matrices,
    chain_of_designs,
    gated_units,
    head_groups,
    norms_compared,
    turned_pairs,
    two_designs,
)
from coursekit_classroom.figures.norms import (
    Part,
    collapse,
    norm_places,
    norm_steps,
    residual_stream,
)
from coursekit_classroom.figures.order import (
    added_positions,
    bag_of_vectors,
    position_rows,
    read_map,
    turned_back,
)
from coursekit_classroom.figures.positions import clocks, turns
from coursekit_classroom.figures.preferences import (
    drawn_answers,
    group_of_answers,
    policies,
)
from coursekit_classroom.figures.probing import (
    changed_token,
    checklist,
    column_of_map,
    module_gaps,
    oracle_bars,
    probe_questions,
    two_losses,
)
from coursekit_classroom.figures.rewards import (
    checked_answers,
    preference_curve,
    training_chains,
)
from coursekit_classroom.figures.seq2seq import (
    attention_to_memory,
    generated_steps,
    one_memory,
    two_stacks,
)
from coursekit_classroom.figures.speeds import speed_ratios
from coursekit_classroom.figures.stack import vectors_read
from coursekit_classroom.figures.style import (
    COLORS,
    ROLES,
    WIDTH,
    mosaic,
    new_figure,
    png,
    use_style,
)
from coursekit_classroom.figures.tokens import (
    next_tokens,
    pipeline,
    token_bytes,
    token_cuts,
    token_rows,
    who_sees_whom,
)
from coursekit_classroom.figures.training import (
    learning_rates,
    rate_valleys,
    schedules,
    split_text,
    train_and_validation,
    update_sizes,
)
from coursekit_classroom.figures.tuning import (
    batches_compared,
    counted_targets,
    forgotten,
    low_rank_update,
    read_and_targets,
    updates_to_scale,
)
from coursekit_classroom.figures.vector import CELLS, encode, svg
from coursekit_classroom.figures.vectors import (
    distances,
    low_rank,
    neighbor_lists,
    paths,
    vector_rows,
)
from coursekit_classroom.figures.vision import (
    image_row,
    looked_at,
    patch_sequence,
    patch_vectors,
    pixel_cuts,
)
from coursekit_classroom.figures.windows import (
    expert_routes,
    paired_entries,
    rounded_weights,
    shares,
    window_reach,
)
