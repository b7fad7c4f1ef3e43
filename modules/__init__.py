"""Layers: parameters, initialisation and calls of `jagged.ops`, on `JaggedTensor`."""

from jagged.modules.attention import HSTUAttention
from jagged.modules.bias import RelativeBias
from jagged.modules.elementwise import JaggedDenseAdd, JaggedDropout, JaggedRowAdd, JaggedSoftmax
from jagged.modules.encoders import PositionEncoder, TimestampEncoder
from jagged.modules.hstu import HSTULayer, HSTUStack
from jagged.modules.hstu_config import HSTUConfig
from jagged.modules.linear import JaggedBMM, JaggedLinear, PerRowLinear
from jagged.modules.norm import HeadLayerNorm, JaggedLayerNorm, TokenLayerNorm
from jagged.modules.pooling import AttentionPooling, LastPooling, MeanPooling, SumPooling

__all__ = [
    "AttentionPooling",
    "HSTUAttention",
    "HSTUConfig",
    "HSTULayer",
    "HSTUStack",
    "HeadLayerNorm",
    "JaggedBMM",
    "JaggedDenseAdd",
    "JaggedDropout",
    "JaggedLayerNorm",
    "JaggedLinear",
    "JaggedRowAdd",
    "JaggedSoftmax",
    "LastPooling",
    "MeanPooling",
    "PerRowLinear",
    "PositionEncoder",
    "RelativeBias",
    "SumPooling",
    "TimestampEncoder",
    "TokenLayerNorm",
]
