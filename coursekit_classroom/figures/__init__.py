"""Pictures in one visual language; the only folder that needs matplotlib.

`style` holds colors and sizes, `shapes` what several figures are made of; the
other modules draw.  A function that draws returns axes: end the cell with a
semicolon, or give them a name, and the notebook does not print them.
"""

# ruff: noqa: F401, F403  each module says in `__all__` what it offers

# Pages draw with these.
import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from coursekit_classroom.figures.accuracy import *
from coursekit_classroom.figures.alignment import *
from coursekit_classroom.figures.attention import *
from coursekit_classroom.figures.caches import *
from coursekit_classroom.figures.charts import *
from coursekit_classroom.figures.chunks import *
from coursekit_classroom.figures.circuits import *
from coursekit_classroom.figures.conventions import *
from coursekit_classroom.figures.costs import *
from coursekit_classroom.figures.drafts import *
from coursekit_classroom.figures.embedding import *
from coursekit_classroom.figures.feedforward import *
from coursekit_classroom.figures.flow import *
from coursekit_classroom.figures.gaps import *
from coursekit_classroom.figures.generation import *
from coursekit_classroom.figures.heads import *
from coursekit_classroom.figures.inference import *
from coursekit_classroom.figures.lists import *
from coursekit_classroom.figures.losses import *
from coursekit_classroom.figures.machines import *
from coursekit_classroom.figures.maps import *
from coursekit_classroom.figures.masks import *
from coursekit_classroom.figures.merges import *
from coursekit_classroom.figures.modern import *
from coursekit_classroom.figures.norms import *
from coursekit_classroom.figures.order import *
from coursekit_classroom.figures.positions import *
from coursekit_classroom.figures.preferences import *
from coursekit_classroom.figures.probing import *
from coursekit_classroom.figures.rewards import *
from coursekit_classroom.figures.seq2seq import *
from coursekit_classroom.figures.speeds import *
from coursekit_classroom.figures.stack import *
from coursekit_classroom.figures.style import (
    COLORS,
    ROLES,
    WIDTH,
    mosaic,
    new_figure,
    png,
    use_style,
)
from coursekit_classroom.figures.tokens import *
from coursekit_classroom.figures.training import *
from coursekit_classroom.figures.tuning import *
from coursekit_classroom.figures.vector import *
from coursekit_classroom.figures.vectors import *
from coursekit_classroom.figures.vision import *
from coursekit_classroom.figures.windows import *
