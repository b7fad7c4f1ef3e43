"""What the layer norms do alike before autograd records them."""

import torch
from torch import Tensor


def recorded_weight(values: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """The weight for an op whose backward pass runs: ones where a bias has a dtype of its own.

    The backward ops give the gradient of the bias in the dtype of the weight, without one in that
    of the values, and a float32 bias must not get a gradient rounded to 16 bits.
    """
    if weight is None and bias is not None and bias.dtype != values.dtype:
        return torch.ones_like(bias)
    return weight
