"""The parts of `examples/train_recommender.py`, one file a concern."""
