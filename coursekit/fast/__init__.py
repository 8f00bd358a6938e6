"""Transformations of a plain model that make it faster, and change no number.

:func:`for_training` gives a view with the same parameters,
:func:`for_generation` a copy of the weights.  The model stays as it is.
"""

from coursekit.fast.inference import Packed, for_generation
from coursekit.fast.training import for_training

__all__ = ["Packed", "for_generation", "for_training", "pack"]

pack = for_generation  # as `coursekit` offers it
