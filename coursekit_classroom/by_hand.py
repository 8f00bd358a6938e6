"""The small example that chapters 4 to 9 work out by hand.

Three tokens, four dimensions, two heads of two dimensions, a feed-forward
network with three hidden units, a vocabulary of four words.  Each chapter
goes on with the numbers of the one before, until one token has gone through
a whole model.  The entries are small integers, chosen for these properties:

- the products of *sat*'s query with the keys are −2, 2 and 0 in the first
  head: a negative score and a score of 0 get weight, too;
- without a mask, *cat* would look most at *sat*, which it must not see;
- *sat* finds *cat* in the first head and *the* in the second;
- each row of :data:`X` has mean 0 and variance 1, so that a norm before
  attention leaves queries, keys and values as they are;
- the feed-forward network's first hidden unit fires for *sat*, the second
  does not, the third hardly;
- each position predicts the word that follows: *cat*, *sat*, then *on*.
"""

import torch

__all__ = [
    "EMBEDDING",
    "POSITIONS",
    "UNEMBED",
    "VOCABULARY",
    "WORDS",
    "W_1",
    "W_2",
    "W_K",
    "W_K2",
    "W_Q",
    "W_Q2",
    "W_V",
    "W_V2",
    "X",
]

WORDS = ["the", "cat", "sat"]

# Chapters 2 and 3.  (V, D) and (T, D): a row per word, a row per position.
VOCABULARY = ["the", "cat", "sat", "on"]
EMBEDDING = torch.tensor(
    [[1.0, -1, -1, 0], [1, -1, 0, -1], [1, 0, -1, -1], [0, 1, 0, -1]]
)
POSITIONS = torch.tensor([[0.0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]])
# (T, D): word and position together.
X = EMBEDDING[:3] + POSITIONS

# Chapter 4.  (D, Dh) each: x @ W_Q is the query of a token.
W_Q = torch.tensor([[1.0, 2.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])
W_K = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
W_V = torch.tensor([[2.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, -1.0]])

# Chapter 6: the second head.  The output matrix is the identity, so what is
# added to x are the two entries of the first head, then those of the second.
W_Q2 = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [-1.0, 0.0]])
W_K2 = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
W_V2 = torch.tensor([[0.0, 0.0], [0.0, -1.0], [0.0, 0.0], [1.0, 0.0]])

# Chapter 8.  (D, Dff) and (Dff, D), with ReLU between them.
W_1 = torch.tensor([[1.0, 0, 1], [1, -1, 0], [0, 1, 1], [0, 0, 0]])
W_2 = torch.tensor([[0.0, 1, 0, -1], [1, 0, 1, 0], [1, 0, -1, 0]])

# Chapter 9.  (V, D): one row per word, compared with the normalized vector.
UNEMBED = torch.tensor(
    [[-1.0, 0, 1, 0], [0, -1, 0, 1], [1, 0, 0, -1], [0, 2, 0, -1]]
)
