"""Configs of _products.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS__times_matrices = {
    (2, 128, 64): 0,
    (2, 128, 4): 1,
    (2, 256, 256): 2,
    (4, 128, 256): 3,
    (2, 256, 4): 2,
    (2, 256, 64): 2,
    (2, 128, 256): 0,
    (2, 128, 4096): 0,
    (2, 256, 4096): 2,
}


def key__times_matrices(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 256:
            if length < 16:
                return 1
            return 0
        return 2
    return 3


def autotune__times_matrices(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [128, 64], 'num_warps': 4, 'num_stages': 1, 'form': 'whole'},
        {'block_sizes': [128, 16], 'num_warps': 4, 'num_stages': 2, 'form': 'turned'},
        {'block_sizes': [128, 64, 64], 'num_warps': 4, 'num_stages': 3},
        {'block_sizes': [128, 32, 32], 'num_warps': 4, 'num_stages': 2},
    ]
    return _C[key__times_matrices(itemsize, width, length)]


POINTS__transposed = {
    (2, 128, 64): 0,
    (2, 128, 4): 1,
    (4, 128, 256): 2,
}


def key__transposed(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if length < 16:
            return 1
        return 0
    return 2


def autotune__transposed(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [128, 128, 32], 'num_warps': 4, 'num_stages': 4},
        {'block_sizes': [128, 128, 16], 'num_warps': 4, 'num_stages': 2},
        {'block_sizes': [64, 128, 16], 'num_warps': 4, 'num_stages': 2},
    ]
    return _C[key__transposed(itemsize, width, length)]


POINTS__combine = {
    (4, 128, 256): 0,
}


def key__combine(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    return 0


def autotune__combine(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [512], 'num_warps': 4},
    ]
    return _C[key__combine(itemsize, width, length)]
