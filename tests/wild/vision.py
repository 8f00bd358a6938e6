"""Answers to chapter 17, written from its page alone."""

import torch
from torch.nn import functional as F

from tests.wild import right, wrong

# vision/patches_of


@right("vision/patches_of", "slices, patch by patch, from left to right")
def sliced(images, size):
    patches = []
    for top in range(0, images.shape[2], size):
        for left in range(0, images.shape[3], size):
            square = images[:, :, top : top + size, left : left + size]
            patches.append(square.flatten(1))
    return torch.stack(patches, 1)


@right("vision/patches_of", "a convolution whose kernels copy one pixel each")
def copying_kernels(images, size):
    n = images.size(1) * size * size
    kernels = torch.eye(n, dtype=torch.float64)
    kernels = kernels.view(n, images.size(1), size, size)
    x = F.conv2d(images.double(), kernels, stride=size)
    return x.flatten(2).mT.to(images.dtype)


@wrong("vision/patches_of", "a reshape alone, which cuts strips", classic=True)
def strips(images, size):
    B, C, Y, X = images.shape
    return images.reshape(B, (Y // size) * (X // size), C * size * size)


@wrong(
    "vision/patches_of",
    "pixel by pixel, with the channels inside",
    classic=True,
)
def channels_inside(images, size):
    B, C, Y, X = images.shape
    x = images.reshape(B, C, Y // size, size, X // size, size)
    x = x.permute(0, 2, 4, 3, 5, 1)
    return x.reshape(B, -1, C * size * size)


@wrong(
    "vision/patches_of",
    "patches column by column, not in reading order",
    classic=True,
)
def down_the_columns(images, size):
    B, C, Y, X = images.shape
    x = images.reshape(B, C, Y // size, size, X // size, size)
    x = x.permute(0, 4, 2, 1, 3, 5)
    return x.reshape(B, -1, C * size * size)


@wrong(
    "vision/patches_of",
    "rows and columns of a patch are exchanged",
    classic=True,
)
def patch_transposed(images, size):
    B, C, Y, X = images.shape
    x = images.reshape(B, C, Y // size, size, X // size, size)
    x = x.permute(0, 2, 4, 1, 5, 3)
    return x.reshape(B, -1, C * size * size)


@wrong(
    "vision/patches_of",
    "the reshape splits into size patches of many "
    "pixels, not into many patches of size pixels",
    classic=True,
)
def split_the_wrong_way(images, size):
    B, C, Y, X = images.shape
    x = images.reshape(B, C, size, Y // size, size, X // size)
    x = x.permute(0, 3, 5, 1, 2, 4)
    return x.reshape(B, -1, C * size * size)


@wrong(
    "vision/patches_of",
    "as many rows as columns of patches: images that are not square go wrong",
    classic=False,
)
def square_images_only(images, size):
    B, C, Y, _ = images.shape
    n = Y // size
    x = images[..., : n * size].reshape(B, C, n, size, -1, size)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(B, n * n, C * size * size)


# vision/classified


@right("vision/classified", "a buffer: row 0 the token, then the patches")
def filled_buffer(patches, token, places, encode, head):
    B, N, D = patches.shape
    x = patches.new_empty(B, 1 + N, D)
    x[:, 0] = token.reshape(-1)
    x[:, 1:] = patches
    y = encode(x + places)
    return torch.einsum("bd,kd->bk", y[:, 0], head)


@right("vision/classified", "image by image")
def image_by_image(patches, token, places, encode, head):
    first = token.reshape(1, -1) + places[:1]
    logits = []
    for image in patches:
        sequence = torch.cat([first, image + places[1:]])
        logits.append(head @ encode(sequence[None])[0, 0])
    return torch.stack(logits)


@wrong(
    "vision/classified",
    "the token stands in front, but patches still have places from row 0 on",
    classic=True,
)
def places_one_off(patches, token, places, encode, head):
    x = patches + places[:-1]
    first = token.reshape(1, 1, -1).expand(len(x), 1, -1)
    return encode(torch.cat([first, x], dim=1))[:, 0] @ head.T


@wrong(
    "vision/classified",
    "places are right, but the token stands at the end and row 0 is read",
    classic=True,
)
def first_patch_read(patches, token, places, encode, head):
    x = patches + places[1:]
    last = (token.reshape(1, 1, -1) + places[0]).expand(len(x), 1, -1)
    return encode(torch.cat([x, last], dim=1))[:, 0] @ head.T


@wrong(
    "vision/classified",
    "the token stays at the end, with the last place, and is read there",
    classic=True,
)
def token_at_the_end(patches, token, places, encode, head):
    last = token.reshape(1, 1, -1).expand(len(patches), 1, -1)
    x = torch.cat([patches, last], dim=1) + places
    return encode(x)[:, -1] @ head.T


@wrong("vision/classified", "the class token gets no place", classic=True)
def token_without_place(patches, token, places, encode, head):
    first = token.reshape(1, 1, -1).expand(len(patches), 1, -1)
    x = torch.cat([first, patches + places[1:]], dim=1)
    return encode(x)[:, 0] @ head.T


@wrong(
    "vision/classified",
    "logits of the mean over all rows, not of the class token",
    classic=True,
)
def mean_of_rows(patches, token, places, encode, head):
    first = token.reshape(1, 1, -1).expand(len(patches), 1, -1)
    x = torch.cat([first, patches], dim=1) + places
    return encode(x).mean(1) @ head.T


# vision/grid_code


@right("vision/grid_code", "two loops over the grid")
def two_loops(down, across):
    return torch.stack(
        [torch.cat([row, column]) for row in down for column in across]
    )


@right("vision/grid_code", "broadcast to the grid, then flattened")
def broadcast(down, across):
    R, C = len(down), len(across)
    grid = torch.cat(
        [down[:, None].expand(R, C, -1), across[None].expand(R, C, -1)], dim=2
    )
    return grid.reshape(R * C, -1)


@wrong(
    "vision/grid_code",
    "repeat and repeat_interleave are exchanged: places go down the columns",
    classic=True,
)
def down_first(down, across):
    rows = down.repeat(len(across), 1)
    columns = across.repeat_interleave(len(down), dim=0)
    return torch.cat([rows, columns], dim=1)


@wrong("vision/grid_code", "the column's code stands first", classic=True)
def column_first(down, across):
    rows = down.repeat_interleave(len(across), dim=0)
    return torch.cat([across.repeat(len(down), 1), rows], dim=1)


@wrong(
    "vision/grid_code",
    "each code is repeated as often as it has rows "
    "itself, which only fits a square",
    classic=True,
)
def square_grid_only(down, across):
    rows = down.repeat_interleave(len(down), dim=0)
    return torch.cat([rows, across.repeat(len(across), 1)], dim=1)


@wrong(
    "vision/grid_code",
    "both codes are tiled, so that rows and columns run along together",
    classic=False,
)
def both_tiled(down, across):
    return torch.cat(
        [down.repeat(len(across), 1), across.repeat(len(down), 1)], dim=1
    )


# vision/resized


@right("vision/resized", "interpolates an identity, and multiplies by it")
def by_a_matrix(table, old, new):
    eye = torch.eye(old * old, dtype=table.dtype)
    maps = F.interpolate(
        eye.view(1, -1, old, old), size=(new, new), mode="bilinear"
    )
    return torch.cat([table[:1], maps.view(old * old, -1).T @ table[1:]])


@right("vision/resized", "one dimension of the vectors at a time")
def number_by_number(table, old, new):
    columns = []
    for column in table[1:].unbind(1):
        grid = column.reshape(1, 1, old, old)
        grid = F.interpolate(
            grid, (new, new), mode="bilinear", align_corners=False
        )
        columns.append(grid.flatten())
    return torch.cat([table[0][None], torch.stack(columns, 1)])


@wrong(
    "vision/resized",
    "the list is reshaped to (1, D, old, old) without bringing D to the front",
    classic=True,
)
def reshaped_only(table, old, new):
    D = table.size(1)
    grid = table[1:].reshape(1, D, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    return torch.cat([table[:1], grid.reshape(new * new, D)])


@wrong(
    "vision/resized",
    "D is brought to the front, but not back again",
    classic=True,
)
def not_brought_back(table, old, new):
    D = table.size(1)
    grid = table[1:].T.reshape(1, D, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    return torch.cat([table[:1], grid.reshape(new * new, D)])


@wrong("vision/resized", "the row of the class token is missing", classic=True)
def class_token_missing(table, old, new):
    grid = table[1:].T.reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    return grid.flatten(2)[0].T


@wrong(
    "vision/resized",
    "the nearest place is copied: the mode was forgotten",
    classic=True,
)
def nearest(table, old, new):
    grid = table[1:].T.reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(new, new))
    return torch.cat([table[:1], grid.flatten(2)[0].T])


@wrong(
    "vision/resized",
    "interpolated along the sequence, as if places stood in one line",
    classic=True,
)
def along_the_line(table, old, new):
    line = F.interpolate(table[1:].T[None], size=new * new, mode="linear")
    return torch.cat([table[:1], line[0].T])


@wrong(
    "vision/resized",
    "the last row is taken for the class token's",
    classic=False,
)
def last_row_kept(table, old, new):
    grid = table[:-1].T.reshape(1, -1, old, old)
    grid = F.interpolate(grid, size=(new, new), mode="bilinear")
    return torch.cat([grid.flatten(2)[0].T, table[-1:]])


# vision/is_a_set


@right("vision/is_a_set", "orders as lists of numbers, and all()")
def orders_as_lists(read, patches):
    n, before = len(patches), read(patches)

    def exchanged(i):
        order = list(range(n))
        order[i : i + 2] = order[i + 1], order[i]
        return read(patches[order])

    return all(torch.allclose(exchanged(i), before) for i in range(n - 1))


@right("vision/is_a_set", "recursion from the last pair to the first")
def recursive_pairs(read, patches):
    usual = read(patches.clone())

    def unmoved(i):
        if i < 0:
            return True
        parts = (
            patches[:i],
            patches[i + 1 : i + 2],
            patches[i : i + 1],
            patches[i + 2 :],
        )
        gap = (read(torch.cat(parts)) - usual).abs().max().item()
        scale = max(usual.abs().max().item(), 1.0)
        return gap < 1e-6 * scale and unmoved(i - 1)

    return unmoved(len(patches) - 2)


def _exchange(patches, i):
    order = torch.arange(len(patches))
    order[i], order[i + 1] = i + 1, i
    return patches[order]


@wrong(
    "vision/is_a_set", "only the first two patches are exchanged", classic=True
)
def first_pair_only(read, patches):
    return torch.allclose(read(_exchange(patches, 0)), read(patches))


@wrong("vision/is_a_set", "the last pair is forgotten", classic=True)
def last_pair_forgotten(read, patches):
    before = read(patches)
    return all(
        torch.allclose(read(_exchange(patches, i)), before, atol=1e-6)
        for i in range(len(patches) - 2)
    )


@wrong("vision/is_a_set", "equal to the last bit is asked for", classic=True)
def to_the_last_bit(read, patches):
    before = read(patches)
    return all(
        torch.equal(read(_exchange(patches, i)), before)
        for i in range(len(patches) - 1)
    )


@wrong(
    "vision/is_a_set",
    "an exchange by tuple assignment on rows of a "
    "tensor, which copies one patch over the other",
    classic=True,
)
def one_patch_twice(read, patches):
    before = read(patches)
    for i in range(len(patches) - 1):
        other = patches.clone()
        other[i], other[i + 1] = other[i + 1], other[i]
        if not torch.allclose(read(other), before, atol=1e-6):
            return False
    return True


@wrong(
    "vision/is_a_set",
    "the patches are turned around once, instead of exchanged pair by pair",
    classic=True,
)
def turned_around(read, patches):
    return torch.allclose(read(patches.flip(0)), read(patches), atol=1e-6)


@wrong(
    "vision/is_a_set", "one pair that changes nothing is enough", classic=False
)
def one_is_enough(read, patches):
    before = read(patches)
    return any(
        torch.allclose(read(_exchange(patches, i)), before, atol=1e-6)
        for i in range(len(patches) - 1)
    )
