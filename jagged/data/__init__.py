"""Rows to batches: samplers and collation, no model in it."""

from jagged.data.collate import collate, collate_features
from jagged.data.sampler import SamplerState, TokenBudgetSampler

__all__ = ["SamplerState", "TokenBudgetSampler", "collate", "collate_features"]
