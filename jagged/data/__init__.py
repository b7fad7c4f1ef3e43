"""Rows to batches: samplers, collation and a reader of Parquet, no model in it."""

from jagged.data.balance import BalancedSampler, balance_rows, row_costs
from jagged.data.collate import collate, collate_features
from jagged.data.parquet import ParquetBatches, read_parquet
from jagged.data.sampler import SamplerState, TokenBudgetSampler

__all__ = [
    "BalancedSampler",
    "ParquetBatches",
    "SamplerState",
    "TokenBudgetSampler",
    "balance_rows",
    "collate",
    "collate_features",
    "read_parquet",
    "row_costs",
]
