"""Ops on jagged tensors: plain tensors in (`values`, `offsets`) and out, each with a backward."""

from jagged.ops.dense_add import dense_add
from jagged.ops.dense_bmm import dense_bmm
from jagged.ops.from_padded import from_padded
from jagged.ops.hstu_attention import hstu_attention
from jagged.ops.jagged_bmm import jagged_bmm
from jagged.ops.layer_norm import layer_norm
from jagged.ops.mean import mean
from jagged.ops.norm_mul_dropout import norm_mul_dropout
from jagged.ops.padded_add import padded_add
from jagged.ops.row_add import row_add
from jagged.ops.softmax import softmax
from jagged.ops.sum import sum
from jagged.ops.to_padded import to_padded
from jagged.ops.token_layer_norm import token_layer_norm

__all__ = [
    "dense_add",
    "dense_bmm",
    "from_padded",
    "hstu_attention",
    "jagged_bmm",
    "layer_norm",
    "mean",
    "norm_mul_dropout",
    "padded_add",
    "row_add",
    "softmax",
    "sum",
    "to_padded",
    "token_layer_norm",
]
