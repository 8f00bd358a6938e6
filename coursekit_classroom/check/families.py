"""Mistakes that are made in many exercises, and what a tutor says to each.

An exercise makes one by edits of its own reference, and says what is
particular to it: ``NO_SCALE.by(" / size**0.5", "", read="...")``.
"""

from coursekit_classroom.check.core import Bug

# -- scores ------------------------------------------------------------------
NO_SCALE = Bug(
    says="the scores without 1/√D_h",
    why="Scores grow like √D_h. Without the division the softmax is nearly "
    "one-hot from the start, and little gradient comes through.",
    read="04_attention#att-predict-scale",
)
SCALE_OF_MODEL = Bug(
    says="the scores divided by √D, not by √D_h",
    why="A score is a sum over the numbers of one head: D_h = D / H.",
    read="04_attention#att-predict-scale",
)
OVER_QUERIES = Bug(
    says="softmax over the queries (dim=-2) instead of the keys",
    why="Each query divides its attention among the keys: normalize along "
    "the last axis, so that rows sum to 1.",
    read="04_attention#att-by-hand",
)
NAIVE = Bug(
    says="a softmax that takes exp of the scores as they are",
    why="exp(1000) is infinite, and infinity over infinity is NaN. Subtract "
    "the row's maximum first: no weight changes.",
    read="04_attention#att-formula",
)
ONE_MAXIMUM = Bug(
    says="the largest score of all subtracted, not the largest of each row",
    why="In a row far below it every exp underflows to 0, and NaN or −∞ "
    "follows. Each row needs its own maximum: dim=-1, keepdim=True.",
    read="04_attention#att-formula",
)
WEIGHTS_STORED = Bug(
    says="attention with all of its weights stored at once",
    why="Its memory grows with the product of the two lengths. Go through "
    "the keys block by block.",
    read="04_attention#att-blocks",
    alone=True,
)
REST_DROPPED = Bug(
    says="a last block that is not full, and is dropped",
    why="The last one may be smaller, and it counts like all others.",
    read="04_attention#att-blocks",
)

# -- masks -------------------------------------------------------------------
INVERTED = Bug(
    says="a mask upside down: padding is read, and real tokens are not",
    why="Here True means: may look. nn.MultiheadAttention has it the other "
    "way round, F.scaled_dot_product_attention as we do. ~mask turns it.",
    read="05_masks#mask-padding",
)
MASK_ZERO = Bug(
    says="hidden scores set to 0 instead of −∞",
    why="A score of 0 is a score like any other: e⁰ = 1. Only −∞ becomes "
    "the weight 0.",
    read="05_masks#ch-masks",
)
MASK_FINITE = Bug(
    says="hidden scores filled with a finite number, and real scores may be "
    "lower",
    why="Scores may be far below 0, and then a hidden key gets all the "
    "weight. Fill with −∞.",
    read="05_masks#ch-masks",
    alone=True,
)
MASK_AFTER = Bug(
    says="the mask applied after the softmax, without dividing again",
    why="The sum in the softmax has seen the hidden keys, and the rows no "
    "longer sum to 1. Mask before the softmax.",
    read="05_masks#ch-masks",
)
ZERO_IS_PADDING = Bug(
    says="token 0 taken for the padding, whatever pad_id is",
    why="Compare with pad_id: elsewhere 0 is a token like any other.",
    read="05_masks#mask-padding",
)
PADDING_READ = Bug(
    says="padding that everybody reads",
    why="The encoder gives padding a vector, too. Hide it, or a sentence's "
    "output depends on how long its neighbors in the batch are.",
    read="14_seq2seq#seq-masks",
)

# -- means -------------------------------------------------------------------
MEAN_OF_MEANS = Bug(
    says="the mean of the batches' means",
    why="Then a target among few weighs more than one among many. Add up all "
    "losses, and divide once, by the number of all targets.",
    read="00_first_model#first-loss",
)
PADDING_COUNTED = Bug(
    says="a mean over all targets, those of −100 included",
    why="Padding is left out of the sum and of the number divided by. "
    "Otherwise long padding looks like skill.",
    read="10_loss#loss-formula",
)
EMPTY_NAN = Bug(
    says="a mean over nothing, which is NaN",
    why="If nothing counts, there are 0 to divide by. One such batch turns "
    "every weight into NaN: divide by at least 1.",
    read="10_loss#loss-code",
)
SOFTMAX_FIRST = Bug(
    says="a softmax before a loss that wants logits",
    why="The loss does the softmax itself. After another one even a perfect "
    "prediction costs ln(e + V − 1) − 1 nats.",
    read="10_loss#loss-wrong",
)
POPULATION = Bug(
    says="a standard deviation with n in the denominator, not n − 1",
    why="A few values lie closer to their own mean than to the true one: "
    "divide by n − 1.",
)

# -- off by one --------------------------------------------------------------
SEES_NEXT = Bug(
    says="a mask that is off by one: each position sees the next token",
    why="Hide all that lies above the diagonal: tril(), or triu(1).",
    read="05_masks#mask-padding",
)
NOT_SHIFTED = Bug(
    says="targets that are the tokens read, not the next ones",
    why="The logits of a position are for the token after it: the targets "
    "begin with the second token.",
    read="20_tuning#tun-mask",
)
NO_END = Bug(
    says="an end that is no target",
    why="A model that is never asked for the end of an answer does not learn "
    "to stop.",
    read="20_tuning#tun-mask",
)

# -- tests -------------------------------------------------------------------
EXACT = Bug(
    says="a comparison to the last bit",
    why="Sums taken in another order differ in the last digits. Allow for "
    "rounding, as torch.allclose does.",
)
