"""What the row kernels share: values seen as [T, width]."""

import math

from torch import Tensor


def as_matrix(values: Tensor) -> Tensor:
    """`values` [T, ...] as [T, width]; copied only where the trailing dimensions cannot be merged.

    They can be where they lie densely behind one another: always for [T], [T, D] and contiguous
    tensors, and for [T, H, D] views of one fused projection. A view such as
    `x[:, :, :D]` of a [T, H, 2 * D] tensor cannot, and is copied by `reshape`.
    """
    if values.ndim == 2:
        return values
    return values.reshape(values.shape[0], math.prod(values.shape[1:]))
