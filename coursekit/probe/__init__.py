"""Black-box probes: change the input, and see what moves in the output.

A probe needs nothing but a model from token ids (B, T) to logits (B, T, V):
a module, or any function, as ``lambda ids: model(ids).logits``.  It returns a
small report: ``report.ok``, the numbers behind it, and ``str(report)``, one
sentence.  The model is left as it was: its weights, gradients and buffers,
its mode, and the state of the random numbers.  Two probes examine what uses
the model: :func:`asks_for` the loss, :func:`same_in_use` the loop that
generates.
"""

from coursekit.probe.context import (
    BatchIndependence,
    Causality,
    Repeats,
    UsesContext,
    batch_independence,
    causality,
    reach,
    repeats,
    uses_context,
)
from coursekit.probe.inference import (
    PrefixGap,
    SameInUse,
    prefix_gap,
    same_in_use,
)
from coursekit.probe.training import (
    AsksFor,
    TrainsEverything,
    asks_for,
    trains_everything,
)

__all__ = [
    "AsksFor",
    "BatchIndependence",
    "Causality",
    "PrefixGap",
    "Repeats",
    "SameInUse",
    "TrainsEverything",
    "UsesContext",
    "asks_for",
    "batch_independence",
    "causality",
    "prefix_gap",
    "reach",
    "repeats",
    "same_in_use",
    "trains_everything",
    "uses_context",
]
