"""HSTU attention on CUDA."""
