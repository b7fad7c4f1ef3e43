"""fbgemm's jagged operators on the ops of this library, by name and through the dispatcher.

Two ways to use them: call the functions here instead of `torch.ops.fbgemm.*` (same names, argument
order and results; fbgemm need not be installed), or let `install_fbgemm_kernels()` of
`jagged.interop.fbgemm_dispatch` replace the kernels of an installed fbgemm, so that torchrec and
other callers use them without a change.

fbgemm writes a jagged tensor as `values` and a list of offsets, one for each jagged dimension; one
such dimension is supported here. It takes any strides: a tensor with another than 1 in the last
dimension is copied. Rows longer than `max_L` follow fbgemm's rules: cut when padded, 0 (and
gradient 0) in products, unchanged in additions, and in `jagged_softmax` 0, where fbgemm leaves
memory uninitialised.

Some of fbgemm's jagged operators have no function here, since there are other ways to write them:

- `jagged_dense_elementwise_mul`: `values * ops.from_padded(y, offsets, values.shape[0])`
- `jagged_index_select`: `JaggedTensor.select`
- `jagged_slice`, `jagged_1d_to_truncated_values`: `JaggedTensor.split`
- `batched_dense_vec_jagged_2d_mul` with one head:
  `ops.jagged_bmm(ops.from_padded(v, offsets, values.shape[0])[:, None], values, offsets)`
- `segment_sum_csr(1, ...)`: `ops.sum`
"""

from collections.abc import Sequence

from torch import Tensor

from jagged import checks, ops
from jagged.ops._library import unit_last_stride


def only_offsets(offsets: Sequence[Tensor]) -> Tensor:
    """The offsets of the one jagged dimension.

    Raises:
        ValueError: a list of another length than one.
    """
    if isinstance(offsets, Tensor) or len(offsets) != 1:
        what = "a tensor" if isinstance(offsets, Tensor) else f"{len(offsets)} entries"
        raise ValueError(
            f"offsets must be a list of one tensor (one jagged dimension), got {what}: "
            "flatten nested jagged dimensions first"
        )
    return offsets[0]


def jagged_to_padded_dense(
    values: Tensor,
    offsets: Sequence[Tensor],
    max_lengths: Sequence[int],
    padding_value: float = 0.0,
) -> Tensor:
    """[B, N, D] (or [B, N] of values [T]) with N = max_lengths[0]: `jagged.ops.to_padded`."""
    if len(max_lengths) != 1:
        raise ValueError(f"max_lengths must have one entry, got {list(max_lengths)}")
    found = only_offsets(offsets)
    return ops.to_padded(unit_last_stride(values), found, max_lengths[0], padding_value)


def jagged_2d_to_dense(values: Tensor, offsets: Tensor, max_sequence_length: int) -> Tensor:
    """Values [T, D] as [B, N, D], 0 where a row has ended."""
    return jagged_to_padded_dense(values, [offsets], [max_sequence_length])


def jagged_1d_to_dense(
    values: Tensor, offsets: Tensor, max_sequence_length: int, padding_value: int
) -> Tensor:
    """Values [T] as [B, N], `padding_value` where a row has ended."""
    return jagged_to_padded_dense(values, [offsets], [max_sequence_length], padding_value)


def dense_to_jagged(
    dense: Tensor, x_offsets: Sequence[Tensor], total_L: int | None = None
) -> tuple[Tensor, list[Tensor]]:
    """([total_L, D], offsets) of dense [B, N, D]; without `total_L` it is read from the device."""
    offsets = only_offsets(x_offsets)
    total = int(offsets[-1]) if total_L is None else total_L
    checks.length("total_L", total)
    return ops.from_padded(unit_last_stride(dense), offsets, total), list(x_offsets)


def jagged_dense_elementwise_add(
    x_values: Tensor, x_offsets: Sequence[Tensor], y: Tensor
) -> Tensor:
    """Dense [B, N, D]: `y` plus the padded rows: `jagged.ops.padded_add`."""
    return ops.padded_add(unit_last_stride(x_values), only_offsets(x_offsets), unit_last_stride(y))


def jagged_dense_elementwise_add_jagged_output(
    x_values: Tensor, x_offsets: Sequence[Tensor], y: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """(values, offsets): the rows plus `y` [B, N, D]: `jagged.ops.dense_add`."""
    offsets = only_offsets(x_offsets)
    return ops.dense_add(unit_last_stride(x_values), offsets, unit_last_stride(y)), list(x_offsets)


def jagged_dense_dense_elementwise_add_jagged_output(
    x_values: Tensor, x_offsets: Sequence[Tensor], y_0: Tensor, y_1: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """(values, offsets): the rows plus two dense tensors [B, N, D]."""
    first, offsets = jagged_dense_elementwise_add_jagged_output(x_values, x_offsets, y_0)
    return jagged_dense_elementwise_add_jagged_output(first, offsets, y_1)


def jagged_softmax(values: Tensor, x_offsets: Tensor, max_L: int) -> tuple[Tensor, Tensor]:
    """(values, offsets): softmax along each row's first `max_L` elements: `jagged.ops.softmax`."""
    return ops.softmax(unit_last_stride(values), x_offsets, max_L), x_offsets


def jagged_jagged_bmm(x_values: Tensor, y_values: Tensor, x_offsets: Tensor, max_L: int) -> Tensor:
    """[B, M, N] of x [T, M] and y [T, N]: `jagged.ops.jagged_bmm`."""
    return ops.jagged_bmm(unit_last_stride(x_values), unit_last_stride(y_values), x_offsets, max_L)


def jagged_dense_bmm(
    x_values: Tensor, x_offsets: Tensor, y: Tensor, max_L: int
) -> tuple[Tensor, Tensor]:
    """(values [T, N], offsets) of x [T, K] and y [B, K, N]: `jagged.ops.dense_bmm`."""
    out = ops.dense_bmm(
        unit_last_stride(x_values), x_offsets, unit_last_stride(y), max_length=max_L
    )
    return out, x_offsets
