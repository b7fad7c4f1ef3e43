"""Ops on jagged tensors: plain `values` and `offsets` in, plain tensors out, each with a backward."""

from jagged.ops.sum import sum

__all__ = ["sum"]
