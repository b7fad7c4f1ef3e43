"""Rows to batches: samplers and collation, no model in it."""
