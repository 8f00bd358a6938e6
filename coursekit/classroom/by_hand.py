"""The small example that chapter 4 works out by hand.

Three tokens, four dimensions, one head of two.  The numbers are small
integers, chosen so that the chapters after it can go on with them (mask,
second head, norm, feed-forward network, the whole block):

- the three products of *sat* with the keys are −2, 2 and 0: a negative
  score and a score of 0 get weight, too;
- without a mask, *cat* would look most at *sat*, which it must not see;
- each row of :data:`X` has mean 0 and variance 1, so that a norm before
  attention leaves queries, keys and values as they are.
"""

import torch

__all__ = ["WORDS", "W_K", "W_Q", "W_V", "X"]

WORDS = ["the", "cat", "sat"]

# (T, D): one row per token, word and position together.
X = torch.tensor(
    [[1.0, -1.0, -1.0, 1.0], [1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]]
)
# (D, Dh) each: x @ W_Q is the query of a token.
W_Q = torch.tensor([[1.0, 2.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])
W_K = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
W_V = torch.tensor([[2.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, -1.0]])
