"""The example of chapters 4 to 9 gives what was worked out on paper."""

import math

import pytest
import torch
from torch import nn

from coursekit.classroom.by_hand import W_K, W_Q, W_V, WORDS, X


def test_queries_keys_and_values_are_small_integers():
    assert (X @ W_Q).tolist() == [[-1, 0], [3, 2], [1, 2]]
    assert (X @ W_K).tolist() == [[0, -1], [0, 1], [2, -1]]
    assert (X @ W_V).tolist() == [[1, 0], [3, 2], [1, 2]]
    assert len(WORDS) == len(X) == 3


def test_weights_of_the_last_token():
    """e^(−√2), e^(√2) and e^0, over their sum; then the mix."""
    products = (X @ W_Q)[2] @ (X @ W_K).T
    assert products.tolist() == [-2, 2, 0]
    parts = [math.exp(-math.sqrt(2)), math.exp(math.sqrt(2)), 1.0]
    weights = [part / sum(parts) for part in parts]
    assert weights == pytest.approx([0.045, 0.768, 0.187], abs=5e-4)
    y = nn.functional.scaled_dot_product_attention(X @ W_Q, X @ W_K, X @ W_V)[
        2
    ]
    by_hand = [
        sum(w * v for w, v in zip(weights, column, strict=True))
        for column in ([1, 3, 1], [0, 2, 2])
    ]
    assert y.tolist() == pytest.approx(by_hand, abs=1e-6)
    assert by_hand == pytest.approx([2.54, 1.91], abs=5e-3)


def test_the_mask_has_something_to_hide():
    """The key that *cat* fits best belongs to a later token."""
    scores = (X @ W_Q) @ (X @ W_K).T
    assert scores[1].argmax() == 2
    assert scores.tolist() != scores.T.tolist()


def test_a_norm_leaves_the_vectors_as_they_are():
    assert torch.allclose(nn.functional.layer_norm(X, (4,)), X, atol=1e-4)
    # The control: a stream that attention has added to does change.
    added = X + nn.functional.pad(X @ W_V, (0, 2))
    assert not torch.allclose(
        nn.functional.layer_norm(added, (4,)), added, atol=0.1
    )
