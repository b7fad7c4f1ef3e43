"""Configs of jagged_bmm.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS__both_gradients = {
    (2, 128, 64): 0,
    (2, 128, 4): 1,
}


def key__both_gradients(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if length < 16:
        return 1
    return 0


def autotune__both_gradients(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [64], 'num_warps': 4, 'num_stages': 1},
        {'block_sizes': [16], 'num_warps': 4, 'num_stages': 2},
    ]
    return _C[key__both_gradients(itemsize, width, length)]
