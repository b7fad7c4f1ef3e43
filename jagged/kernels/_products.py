"""The two products of a jagged and another tensor, which dense_bmm and jagged_bmm are made of.

Symbols: B rows, T elements (capacity included), K and N features. Products accumulate in float32.
One program owns a row, or one of `splits` equal shares of each row where there are few rows. An
`hl.tile` between the row's offsets rather than `hl.jagged_tile`, which spills 376 bytes a thread in
products of 128 x 128 and, for more than one row a program, has a 3-D product without `wgmma`.
"""

from typing import Any

import helion.language as hl
import torch
from torch import Tensor
from torch.nn import functional

from jagged.kernels._device import add_product, limit_of
from jagged.tuning.configs import ConfigTable
from jagged.tuning.launch import launchable
from jagged.tuning.space import Space, powers

NARROWEST = 16  # tensor cores take no less; narrower operands are copied with zeros beside them
# Forms of `times_matrices`: all of a matrix is held while the elements of its row pass; the same
# with the product transposed, so that less than 64 elements at once have wgmma too.
WHOLE, TURNED = "whole", "turned"
# Block sizes: columns, elements and, unless there is a form, K.
TIMES_MATRICES = ConfigTable(
    __file__,
    "_times_matrices",
    [
        Space(WHOLE, [powers(32, 128), powers(64, 128)], warps=(4, 8), stages=(1, 2, 3)),
        Space(TURNED, [powers(64, 128), powers(16, 64)], warps=(4, 8), stages=(1, 2, 3)),
        Space(
            "",
            [powers(64, 128), powers(32, 128), powers(32, 64)],
            warps=(4, 8),
            stages=(2, 3, 4),
        ),
    ],
)
# Block sizes: lines, columns, elements.
TRANSPOSED = ConfigTable(
    __file__,
    "_transposed",
    [
        Space(
            blocks=[powers(64, 128), powers(64, 128), powers(16, 64)],
            warps=(4, 8),
            stages=(1, 2, 3, 4),
        )
    ],
)
# Block sizes: features.
COMBINE = ConfigTable(__file__, "_combine", [Space(blocks=[powers(128, 2048)], warps=(1, 2, 4, 8))])
MANY_PROGRAMS = 2048  # enough to fill a GPU evenly
FEW_PROGRAMS = 512  # enough to fill it, where more shares mean more partial sums
LEAST_SHARE = 128  # elements of a row of mean length that one program has at least


def at_least_narrowest(tensor: Tensor, dimensions: int = 1) -> Tensor:
    """`tensor` with its last `dimensions` padded with 0 to `NARROWEST` where they are less."""
    missing = [max(0, NARROWEST - size) for size in tensor.shape[tensor.ndim - dimensions :]]
    if not any(missing):
        return tensor
    return functional.pad(tensor, [side for size in reversed(missing) for side in (0, size)])


def padded_width(width: int) -> int:
    """The power of two that a kernel pads `width` to, which decides what fits a program."""
    return 1 << (width - 1).bit_length()


def splits_of(total: int, rows: int, programs: int) -> int:
    """Shares of each row so that there are about `programs` programs, for rows of mean length."""
    return max(1, min(programs // rows, total // rows // LEAST_SHARE))


def times_matrices(
    values: Tensor, offsets: Tensor, dense: Tensor, bias: Tensor | None, max_length: int | None
) -> Tensor:
    """[T, N]: the elements of row i of `values` [T, K] times `dense[i]` [K, N], plus `bias[i]`.

    0 at or past `max_length` and in the capacity tail.
    """
    total, (rows, inner, width) = values.shape[0], dense.shape
    if total == 0 or width == 0 or rows == 0:
        return values.new_zeros(total, width)
    if inner < NARROWEST or width < NARROWEST:
        values, dense = at_least_narrowest(values), at_least_narrowest(dense, 2)
        bias = None if bias is None else at_least_narrowest(bias)
    if dense.element_size() == 4:
        # Products without tensor cores read a matrix across its lines at half the speed.
        dense = dense.contiguous()
    out = values.new_empty((total, max(width, NARROWEST)))
    config = TIMES_MATRICES.pick(values, padded_width(max(inner, width, NARROWEST)), rows)
    splits = splits_of(total, rows, MANY_PROGRAMS)
    limit = limit_of(max_length)
    _times_matrices(config, values, offsets, dense, bias, out, limit, splits, config.form)
    return out if width >= NARROWEST else out[:, :width].contiguous()


def transposed_product(
    x: Tensor, y: Tensor, offsets: Tensor, max_length: int | None, with_sums: bool = False
) -> tuple[Tensor, Tensor]:
    """[B, M, N]: each row of x [T, M], transposed, times y [T, N]; sums of y [B, N], or [0]."""
    (total, height), rows, width = x.shape, offsets.shape[0] - 1, y.shape[1]
    if total == 0 or rows == 0 or width == 0:
        sums_shape = (rows, width) if with_sums else (0,)
        return x.new_zeros(rows, height, width), x.new_zeros(sums_shape)
    narrow = height < NARROWEST or width < NARROWEST
    if narrow:
        x, y = at_least_narrowest(x), at_least_narrowest(y)
    shape = (rows, max(height, NARROWEST), max(width, NARROWEST))
    out = x.new_empty(shape)
    sums = x.new_empty((rows, shape[2]) if with_sums else 0)
    config = TRANSPOSED.pick(x, padded_width(max(shape[1:])), rows)
    splits = splits_of(total, rows, FEW_PROGRAMS)
    limit = limit_of(max_length)
    if splits == 1:
        partial, partial_sums = out.unsqueeze(1), sums.unsqueeze(1) if with_sums else None
        _transposed(config, x, y, offsets, partial, partial_sums, limit, splits)
    else:
        partial, partial_sums = _partials(shape, splits, with_sums, x.device)
        _transposed(config, x, y, offsets, partial, partial_sums, limit, splits)
        _combine_shares(partial.view(rows, splits, -1), out.view(rows, -1))
        if partial_sums is not None:
            _combine_shares(partial_sums, sums)
    if not narrow:
        return out, sums
    if with_sums:
        sums = sums[:, :width].contiguous()
    return out[:, :height, :width].contiguous(), sums


def _partials(
    shape: tuple[int, int, int], splits: int, with_sums: bool, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Room for the products and sums of each share."""
    rows, height, width = shape
    out = torch.empty((rows, splits, height, width), dtype=torch.float32, device=device)
    if not with_sums:
        return out, None
    return out, torch.empty((rows, splits, width), dtype=torch.float32, device=device)


def _combine_shares(partial: Tensor, out: Tensor) -> None:
    rows, width = out.shape
    _combine(COMBINE.pick(partial, width, rows), partial, out)


def share_of(offsets: Any, row: Any, split: Any, splits: Any, limit: Any) -> tuple[Any, Any, Any]:
    """Device: first element of a program's share of a row, where the row's limit cuts it, its end.

    All three are in order; without a limit the second is the third.
    """
    start = hl.load(offsets, [row])
    end = hl.load(offsets, [row + 1])
    size = (end - start + (splits - 1)) // splits
    first = torch.minimum(start + split * size, end)
    last = torch.minimum(first + size, end)
    cut = start + torch.clamp(end - start, max=limit)
    return first, torch.maximum(first, torch.minimum(last, cut)), last


def tail_of(offsets: Any, rows: Any, total: Any, program: Any, programs: Any) -> tuple[Any, Any]:
    """Device: the share of the capacity tail that one of `programs` programs zeroes."""
    filled = hl.load(offsets, [rows])
    size = (total - filled + (programs - 1)) // programs
    first = filled + program * size
    return first, torch.clamp(first + size, max=total)


@launchable(dot=True)
def _times_matrices(
    values: Tensor,
    offsets: Tensor,
    dense: Tensor,
    bias: Tensor | None,
    out: Tensor,
    limit: int,
    splits: int,
    form: hl.constexpr,
) -> None:
    """values [T, K], dense [B, K, N], bias [B, N], out [T, N].

    A program owns a share of a row and a block of columns. With a `form` it loads its columns of
    the matrix once; else it goes through K in blocks, again for each block of elements.
    """
    rows = offsets.size(0) - 1
    total = out.size(0)
    inner = hl.specialize(values.size(1))
    width = hl.specialize(out.size(1))
    for columns, split, row in hl.tile([width, splits, rows], block_size=[None, 1, 1]):
        first, cut, last = share_of(offsets, row.begin, split.begin, splits, limit)
        if first < cut:
            if form != "":
                matrix = dense[row.begin, :, columns]
                for tile in hl.tile(first, cut):
                    if form == "turned":
                        product = hl.dot(matrix.T, values[tile, :].T).T
                    else:
                        product = hl.dot(values[tile, :], matrix)
                    if bias is not None:
                        product = product + bias[row.begin, columns].to(torch.float32)[None, :]
                    out[tile, columns] = product.to(out.dtype)
            else:
                for tile in hl.tile(first, cut):
                    product = hl.zeros([tile, columns], dtype=torch.float32)
                    if values.dtype == torch.float32:
                        # In pieces, whose sums are as exact as those of torch.
                        for piece in hl.tile(inner, block_size=128):
                            part = hl.zeros([tile, columns], dtype=torch.float32)
                            for block in hl.tile(piece.begin, piece.end):
                                part = hl.dot(
                                    values[tile, block], dense[row.begin, block, columns], acc=part
                                )
                            product = product + part
                    else:
                        for some in hl.tile(inner):
                            product = hl.dot(
                                values[tile, some], dense[row.begin, some, columns], acc=product
                            )
                    if bias is not None:
                        product = product + bias[row.begin, columns].to(torch.float32)[None, :]
                    out[tile, columns] = product.to(out.dtype)
        for beyond in hl.tile(cut, last, block_size=32):
            out[beyond, columns] = hl.zeros([beyond, columns], dtype=out.dtype)
        tail, tail_end = tail_of(
            offsets, rows, total, row.begin * splits + split.begin, rows * splits
        )
        for beyond in hl.tile(tail, tail_end, block_size=32):
            out[beyond, columns] = hl.zeros([beyond, columns], dtype=out.dtype)


@launchable(dynamic={"out": (0, 1), "sums": (0, 1)}, dot=True)
def _transposed(
    x: Tensor,
    y: Tensor,
    offsets: Tensor,
    out: Tensor,
    sums: Tensor | None,
    limit: int,
    splits: int,
) -> None:
    """x [T, M], y [T, N], out [B, S, M, N], sums [B, S, N], for S = splits shares of each row.

    A program owns a share of a row and a block of its product.
    """
    rows = offsets.size(0) - 1
    height = hl.specialize(x.size(1))
    width = hl.specialize(y.size(1))
    for lines, columns, split, row in hl.tile(
        [height, width, splits, rows], block_size=[None, None, 1, 1]
    ):
        first, cut, _end = share_of(offsets, row.begin, split.begin, splits, limit)
        product = hl.zeros([lines, columns], dtype=torch.float32)
        for tile in hl.tile(first, cut):
            product = add_product(product, x[tile, lines].T, y[tile, columns])
        # The sums have a loop of their own, see `dense_bmm._both_gradients`.
        if sums is not None and lines.begin == 0:
            total = hl.zeros([columns], dtype=torch.float32)
            for some in hl.tile(first, cut, block_size=32):
                total = total + y[some, columns].to(torch.float32).sum(0)
            sums[row.begin, split.begin, columns] = total.to(sums.dtype)
        out[row.begin, split.begin, lines, columns] = product.to(out.dtype)


@launchable(dynamic={"partial": (0, 1)})
def _combine(partial: Tensor, out: Tensor) -> None:
    """out [B, F]: partial [B, S, F] summed over the shares, in their order."""
    shares = partial.size(1)
    width = hl.specialize(out.size(1))
    for row, columns in hl.tile([out.size(0), width], block_size=[1, None]):
        total = hl.zeros([columns], dtype=torch.float32)
        for share in hl.grid(shares):
            total = total + partial[row.begin, share, columns]
        out[row.begin, columns] = total.to(out.dtype)
