"""Networks without attention, to measure a vision transformer against."""

from torch import nn


def mlp(width: int) -> nn.Module:
    """Two layers of equal width on all pixels; it knows of no neighbors.

    Args:
        width: of the two inner layers.

    Returns:
        A module from (B, 1, 28, 28) to (B, 10).

    Chapter: 17, vision.
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, 10),
    )


def convolution(width: int) -> nn.Module:
    """Three convolutions, each at half the height and width of the one before.

    From 28 to 14, 7 and 4; then one matrix for what is left.

    Args:
        width: channels after the first; 2 and 4 times as many follow.

    Returns:
        A module from (B, 1, 28, 28) to (B, 10).

    Chapter: 17, vision.
    """
    return nn.Sequential(
        nn.Conv2d(1, width, 5, stride=2, padding=2),
        nn.GELU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * width, 10),
    )
