"""Exercises of chapter 17: vision."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from coursekit_classroom.check.core import (
    Bug,
    Case,
    Exercise,
    Variant,
    generator,
    randn,
)
from coursekit_classroom.check.families import EXACT

float64 = torch.float64
Part = Callable[[Tensor], Tensor]


# -- implement: cut ----------------------------------------------------------
def patches_of(images: Tensor, size: int) -> Tensor:
    """Cut `(B, C, Y, X)` images into squares of `size` by `size` pixels.

    The result is `(B, N, C · size²)`. Patches stand in reading order: the
    first row of patches from left to right, then the next. In a patch come all
    pixels of its first channel, in reading order, then those of its second.
    `Y` and `X` are multiples of `size`, and may differ.
    """
    batch, channels, height, width = images.shape
    rows, columns = height // size, width // size
    x = images.reshape(batch, channels, rows, size, columns, size)
    x = x.permute(0, 2, 4, 1, 3, 5)
    x = x.reshape(batch, rows * columns, -1)
    return x


_PATCHES_BUGS = {
    "strips": Bug(
        "images.reshape(batch, channels, rows, size, columns, size)\n"
        "    x = x.permute(0, 2, 4, 1, 3, 5)",
        "images",
        says="a reshape alone, so that a patch is a strip of neighboring rows",
        why="Memory holds an image row by row, and a square is not a piece "
        "of it. Split height and width, bring the two axes that count "
        "patches together, then flatten.",
        read="17_vision#vis-predict-strips",
    ),
    "channels_last": Bug(
        "(0, 2, 4, 1, 3, 5)",
        "(0, 2, 4, 3, 5, 1)",
        says="patches with the channels of a pixel side by side",
        why="The same numbers in another order: harmless if the matrix is "
        "learned with it, garbage with weights of a convolution, which go "
        "channel by channel.",
        read="further/17_vision#vis-convolution",
    ),
    "turned": Bug(
        "(0, 2, 4, 1, 3, 5)",
        "(0, 2, 4, 1, 5, 3)",
        says="patches whose pixels are read column by column",
        why="Inside a patch the rows come first, as in the image: the axis "
        "of height before that of width.",
        read="17_vision#vis-by-hand",
    ),
    "column_by_column": Bug(
        "(0, 2, 4, 1, 3, 5)",
        "(0, 4, 2, 1, 3, 5)",
        says="patches counted from top to bottom, then to the right",
        why="Reading order: the row of patches is the slower axis.",
        read="17_vision#vis-by-hand",
    ),
    "upright": Bug(
        "return x",
        "return x.mT",
        says="patches as columns, (B, numbers, N), as F.unfold has them",
        why="A token is a row. Swap the last two axes.",
        read="17_vision#vis-formula",
    ),
    "split_other_way": Bug(
        "rows, size, columns, size)",
        "size, rows, size, columns)",
        "(0, 2, 4, 1, 3, 5)",
        "(0, 3, 5, 1, 2, 4)",
        says="an axis split into (size, rows) instead of (rows, size)",
        why="The pixels of a patch are neighbors: the first of the two new "
        "axes counts patches, the second the pixels in one.",
        read="17_vision#vis-predict-strips",
        alone=True,
    ),
}


def _patches_cases(seed: int) -> list[Case]:
    g = generator(seed)
    images = randn(g, 2, 3, 4, 10)
    return [Case((images, 2), name="two color images, 4 high and 10 wide")]


# -- debug: the class token --------------------------------------------------
def classified(
    patches: Tensor, token: Tensor, places: Tensor, encode: Part, head: Tensor
) -> Tensor:
    """Logits of images, read from the class token.

    `patches` is `(B, N, D)`, one vector for each patch; `token` is `(D,)`, the
    class token, the same for all images. It stands before the patches. To the
    N + 1 vectors the rows of `places`, `(N + 1, D)`, are added, row 0 to the
    class token. `encode` maps `(B, N + 1, D)` to the same shape. What it makes
    of the class token, times `head`, `(K, D)`, transposed, are the `(B, K)`
    logits.
    """
    first = token.expand(len(patches), 1, -1)
    x = torch.cat([first, patches], dim=1)
    x = encode(x + places)
    return x[:, 0] @ head.T


_CLASSIFIED_BUGS = {
    "appended": Bug(
        "[first, patches]",
        "[patches, first]",
        says="the class token behind the patches",
        why="Then `x[:, 0]` is a patch, and row 0 of the table is no longer "
        "the class token's.",
        read="17_vision#vis-formula",
    ),
    "token_without_place": Bug(
        "x = torch",
        "patches = patches + places[1:]\n    x = torch",
        "x + places",
        "x",
        says="a class token without its place",
        why="Row 0 of the table is the class token's.",
        read="17_vision#vis-formula",
    ),
    "places_of_patches": Bug(
        "x = torch",
        "patches = patches + places[:-1]\n    x = torch",
        "x + places",
        "x",
        says="rows 0 to N − 1 for the patches, and none for the class token",
        why="There are N + 1 places. As it is, every patch has the row that "
        "belongs to the one before it.",
        read="17_vision#vis-formula",
    ),
    "no_places": Bug(
        "x + places",
        "x",
        says="vectors without places",
        why="Attention sees a set. Add the table.",
        read="17_vision#vis-set",
    ),
    "last_read": Bug(
        "x[:, 0]",
        "x[:, -1]",
        says="the class read from the last vector",
        why="That is a habit from decoders. Here the class token stands "
        "first.",
        read="17_vision#vis-formula",
    ),
    "mean_read": Bug(
        "x[:, 0]",
        "x.mean(dim=1)",
        says="the class read from the mean of all vectors",
        why="That works too, if the model was trained so. This one was not.",
        read="17_vision#vis-formula",
    ),
}


def mixing(weight: Tensor) -> Part:
    """An encoder in two lines: attention without a matrix, and a network."""

    def encode(x: Tensor) -> Tensor:
        x = x + (x @ x.mT / x.size(-1) ** 0.5).softmax(dim=-1) @ x
        return x + torch.tanh(x @ weight)

    return encode


def _classified_cases(seed: int) -> list[Case]:
    g = generator(seed)
    patches = randn(g, 3, 5, 7)
    token = randn(g, 7)
    places = randn(g, 6, 7)
    weight = randn(g, 7, 7)
    head = randn(g, 11, 7)
    rest = (token, places, mixing(weight), head)
    return [Case((patches, *rest), name="three images of five patches")]


# -- implement: places on a grid ---------------------------------------------
def grid_code(down: Tensor, across: Tensor) -> Tensor:
    """Codes of the places of a grid, from codes of its rows and columns.

    `down` is `(R, E)`, a code for each row, `across` is `(C, F)`, one for each
    column. The result is `(R · C, E + F)`, the places in reading order: of
    each the code of its row, then that of its column.
    """
    first = down.repeat_interleave(len(across), dim=0)
    second = across.repeat(len(down), 1)
    return torch.cat([first, second], dim=1)


_GRID_BUGS = {
    "by_columns": Bug(
        "repeat_interleave(len(across), dim=0)",
        "repeat(len(across), 1)",
        "across.repeat(len(down), 1)",
        "across.repeat_interleave(len(down), dim=0)",
        says="places counted from top to bottom, then to the right",
        why="Reading order: along a row the column changes and the row "
        "stays. So each row's code is repeated C times in a run.",
        read="further/17_vision#vis-grid",
    ),
    "both_repeated": Bug(
        "repeat_interleave(len(across), dim=0)",
        "repeat(len(across), 1)",
        says="both lists repeated from the beginning",
        why="Row and column then count up together, along a diagonal. One "
        "of the two has to stay while the other counts.",
        read="further/17_vision#vis-grid",
        at="order",
    ),
    "own_counts": Bug(
        "(len(across), dim=0)",
        "(len(down), dim=0)",
        "repeat(len(down), 1)",
        "repeat(len(across), 1)",
        says="codes repeated as often as there are codes of their own kind, "
        "which fits a square alone",
        why="A row's code stands once for each *column*, and a column's "
        "code once for each *row*.",
        read="further/17_vision#vis-grid",
        alone=True,
    ),
}


def _grid_cases(seed: int) -> list[Case]:
    g = generator(seed)
    down = randn(g, 3, 4)
    across = randn(g, 5, 4)
    return [Case((down, across), name="three rows, five columns")]


# -- implement: places for a larger image ------------------------------------
def resized(table: Tensor, old: int, new: int) -> Tensor:
    """A table of places for another grid, in between those that were learned.

    `table` is `(1 + old², D)`: the class token's row, then those of the places
    of an old × old grid in reading order. The result is `(1 + new², D)`: the
    class token's row as it was, then the places of a new × new grid, each
    coordinate by bilinear interpolation between its neighbors on the old grid
    (`F.interpolate` with `mode="bilinear"`, `align_corners=False`).
    """
    own, rest = table[:1], table[1:]
    grid = rest.T.reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    flat = grid.reshape(-1, new * new).T
    return torch.cat([own, flat])


_RESIZED_BUGS = {
    "along_the_list": Bug(
        "rest.T.reshape(1, -1, old, old)",
        "rest.T[None]",
        'size=(new, new), mode="bilinear"',
        'size=new * new, mode="linear"',
        says="an interpolation along the list of places",
        why="In the list the end of a row is next to the beginning of the "
        "next. Make a grid of it first.",
        read="further/17_vision#vis-grid",
        at="grid",
    ),
    "reshaped_back": Bug(
        "grid.reshape(-1, new * new).T",
        "grid.reshape(new * new, -1)",
        says="a reshape from (D, new, new) to (new², D), without a transpose",
        why="On the way back the channels have to go to the end again "
        "before anything is flattened.",
        read="17_vision#vis-predict-strips",
        at="grid",
    ),
    "nearest": Bug(
        ', mode="bilinear")',
        ")",
        says="the nearest place's row, instead of something in between",
        why='That is the default of F.interpolate. Say mode="bilinear".',
        read="further/17_vision#vis-grid",
        at="grid",
        otherwise=[(', mode="bilinear", align_corners=True)', ")")],
    ),
    "token_lost": Bug(
        "torch.cat([own, flat])",
        "flat",
        says="a table without the class token's row",
        why="The model looks up 1 + new² places.",
        read="17_vision#vis-formula",
        at="own",
    ),
    "reshaped_both": Bug(
        "rest.T.reshape",
        "rest.reshape",
        "grid.reshape(-1, new * new).T",
        "grid.reshape(new * new, -1)",
        says="reshapes there and back that bring D to the front without "
        "moving a number",
        why="(old², D) is turned first, .T, and then cut into (1, D, old, "
        "old); and turned back behind it.",
        read="17_vision#vis-formula",
        alone=True,
    ),
}


def _resized_cases(seed: int) -> list[Case]:
    g = generator(seed)
    table = randn(g, 10, 7)
    return [Case((table, 3, 5), name="from 3 x 3 to 5 x 5 patches")]


# -- test: is it a set? ------------------------------------------------------
def is_a_set(read: Part, patches: Tensor) -> bool:
    """Whether a model reads these patches as a set: True or False.

    `read` maps `(N, D)` patches to a vector of logits; `patches` are `(N, D)`.
    True if the logits are the same, up to rounding, whichever two neighboring
    patches change places; False if some exchange moves them by more than
    rounding.
    """
    before = read(patches)
    for i in range(len(patches) - 1):
        order = torch.arange(len(patches))
        order[i], order[i + 1] = i + 1, i
        after = read(patches[order])
        if not torch.allclose(after, before):
            return False
    return True


_SET_BUGS = {
    "first_two": Bug(
        "len(patches) - 1",
        "1",
        says="a test that exchanges the first two patches only",
        why="A model may treat these two alike and others not. Try every "
        "pair of neighbors: any order can be made of such exchanges.",
        read="17_vision#vis-set",
        at="test",
    ),
    "reversed": Bug(
        "order[i], order[i + 1] = i + 1, i",
        "order = order.flip(0)",
        says="a test that tries the reverse order only",
        why="A model that cannot tell left from right passes, and is no set.",
        read="17_vision#vis-set",
        at="test",
    ),
    "exactly": EXACT.by(
        "torch.allclose",
        "torch.equal",
        says="a test for equal bits",
        read="17_vision#vis-set",
        at="test",
    ),
    "one_is_enough": Bug(
        "if not torch",
        "if torch",
        "return False\n    return True",
        "return True\n    return False",
        says="one exchange that changes nothing taken as enough",
        why="A single exchange that moves the logits shows that order "
        "counts: all of them have to leave the logits alone.",
        read="17_vision#vis-set",
        alone=True,
    ),
    "last_forgotten": Bug(
        "len(patches) - 1",
        "len(patches) - 2",
        says="a test that forgets the last pair of neighbors",
        why="N patches have N − 1 pairs of neighbors: range(N − 1) reaches "
        "the last.",
        read="17_vision#vis-set",
        alone=True,
    ),
}


def weighted(shares: Tensor, head: Tensor, offset: Tensor) -> Part:
    """A model that counts patches by their place."""
    column = shares[:, None]
    return lambda x: (column * torch.tanh(x)).sum(0) @ head + offset


def in_a_ring(head: Tensor) -> Part:
    """A model that sees which patches are neighbors, round a ring."""
    return lambda x: (x * x.roll(1, 0)).sum(0) @ head


def summed(scale: Tensor, head: Tensor) -> Part:
    """A model that sees a set; its sums round differently in each order."""
    return lambda x: (x * scale).cumsum(0)[-1] @ head


def rounds(read: Part, patches: Tensor) -> bool:
    """Whether an exchange of neighbors moves a last bit."""
    before = read(patches)
    for i in range(len(patches) - 1):
        order = list(range(len(patches)))
        order[i], order[i + 1] = i + 1, i
        if not torch.equal(read(patches[order]), before):
            return True
    return False


def largest(head: Tensor) -> Part:
    """A model that sees a set, to the last bit."""
    return lambda x: x.amax(0) @ head


def first_alone(patches: Tensor) -> Tensor:
    """Logits of the first patch, whatever the others are."""
    return patches[0, :3]


def middle_alone(patches: Tensor) -> Tensor:
    """Logits of the patch in the middle."""
    return patches[len(patches) // 2, :3]


def last_alone(x: Tensor) -> Tensor:
    """A model that looks at the last patch only."""
    return x[-1, :3]


def _set_cases(seed: int) -> list[Case]:
    g = generator(seed)
    n, width, classes = 7, 5, 3
    patches = randn(g, n, width)
    head = randn(g, width, classes)
    scale = torch.zeros(width, dtype=float64)
    while not rounds(summed(scale, head), patches):
        scale = torch.rand(width, generator=g, dtype=float64) + 0.5
    mirrored = torch.tensor([1.0, 2, 4, 7, 4, 2, 1], dtype=float64)
    nearly = 1 + 1e-3 * torch.arange(n, dtype=float64)
    even = head - head.mean(dim=1, keepdim=True)  # its logits sum to 0
    sure = torch.tensor([40.0, 0, -40], dtype=float64)  # of one class
    other = patches.clone()
    other[-2:, :3] = torch.tensor([[0.0, 3, 1], [3, 0, 1]], dtype=float64)
    return [
        Case((summed(scale, head), patches), name="a sum of the patches"),
        Case((largest(head), patches), name="the largest numbers"),
        Case((weighted(mirrored, head, sure), patches), name="from both ends"),
        Case((last_alone, other), name="the last patch alone"),
        Case((first_alone, patches), name="the first patch alone"),
        Case((middle_alone, patches), name="the patch in the middle alone"),
        Case((in_a_ring(head), patches), name="products of neighbors"),
        Case((weighted(nearly, even, sure), patches), name="nearly a sum"),
    ]


EXERCISES = {
    "patches_of": Exercise(
        patches_of,
        _patches_cases,
        bugs=_PATCHES_BUGS,
        forbid=(
            "torch.nn.functional.unfold",
            "torch.nn.functional.pixel_unshuffle",
            "coursekit.vision.patchify",
        ),
    ),
    "classified": Exercise(
        classified,
        _classified_cases,
        bugs=_CLASSIFIED_BUGS,
    ),
    "grid_code": Exercise(
        grid_code,
        _grid_cases,
        bugs=_GRID_BUGS,
        variants={
            "column_in_front": Variant(
                "return",
                "first, second = second, first\n    return",
                asks="Here the column's code stands in front.",
            ),
        },
        forbid=("coursekit.vision.sinusoidal_2d",),
    ),
    "resized": Exercise(
        resized,
        _resized_cases,
        bugs=_RESIZED_BUGS,
        variants={
            "corners": Variant(
                '"bilinear")',
                '"bilinear", align_corners=True)',
                asks="Here the corners of the two grids are at the same "
                "places: align_corners=True.",
            ),
        },
    ),
    "is_a_set": Exercise(
        is_a_set,
        _set_cases,
        bugs=_SET_BUGS,
    ),
}
