"""Configs of token_layer_norm.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS__norm = {
    (2, 32, 1): 0,
    (2, 128, 1): 1,
    (2, 512, 1): 2,
    (2, 4096, 1): 3,
    (4, 32, 1): 0,
    (4, 128, 1): 4,
    (4, 512, 1): 2,
    (4, 4096, 1): 3,
}


def key__norm(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 128:
        return 0
    if width < 512:
        if itemsize < 4:
            return 1
        return 4
    if width < 2048:
        return 2
    return 3


def autotune__norm(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [64], 'num_warps': 4},
        {'block_sizes': [8], 'num_warps': 2},
        {'block_sizes': [4], 'num_warps': 4},
        {'block_sizes': [1], 'num_warps': 8},
        {'block_sizes': [8], 'num_warps': 4},
    ]
    return _C[key__norm(itemsize, width, length)]


POINTS__norm_backward = {
    (2, 32, 1): 0,
    (2, 128, 1): 1,
    (2, 512, 1): 2,
    (2, 4096, 1): 3,
    (4, 32, 1): 0,
    (4, 128, 1): 4,
    (4, 512, 1): 2,
    (4, 4096, 1): 3,
}


def key__norm_backward(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 128:
        return 0
    if width < 512:
        if itemsize < 4:
            return 1
        return 4
    if width < 2048:
        return 2
    return 3


def autotune__norm_backward(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 4, 'constants': {'BLOCK': 32, 'PROGRAMS': 1056}},
        {'num_warps': 8, 'constants': {'BLOCK': 16, 'PROGRAMS': 1056}},
        {'num_warps': 4, 'constants': {'BLOCK': 2, 'PROGRAMS': 1056}},
        {'num_warps': 8, 'constants': {'BLOCK': 1, 'PROGRAMS': 1056}},
        {'num_warps': 8, 'constants': {'BLOCK': 32, 'PROGRAMS': 1056}},
    ]
    return _C[key__norm_backward(itemsize, width, length)]
