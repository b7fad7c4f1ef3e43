"""Configs of norm_mul_dropout.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS__gate = {
    (2, 32, 1): 0,
    (2, 128, 1): 1,
    (2, 512, 1): 2,
    (2, 4096, 1): 3,
    (4, 32, 1): 0,
    (4, 128, 1): 1,
    (4, 512, 1): 4,
    (4, 4096, 1): 3,
}


def key__gate(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 128:
        return 0
    if width < 512:
        return 1
    if width < 2048:
        if itemsize < 4:
            return 2
        return 4
    return 3


def autotune__gate(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [16], 'num_warps': 2},
        {'block_sizes': [16], 'num_warps': 4},
        {'block_sizes': [1], 'num_warps': 1},
        {'block_sizes': [1], 'num_warps': 8},
        {'block_sizes': [8], 'num_warps': 4},
    ]
    return _C[key__gate(itemsize, width, length)]


POINTS__gate_backward = {
    (2, 32, 1): 0,
    (2, 128, 1): 1,
    (2, 512, 1): 2,
    (2, 4096, 1): 3,
    (4, 32, 1): 0,
    (4, 128, 1): 1,
    (4, 512, 1): 4,
    (4, 4096, 1): 3,
}


def key__gate_backward(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 128:
        return 0
    if width < 512:
        return 1
    if width < 2048:
        if itemsize < 4:
            return 2
        return 4
    return 3


def autotune__gate_backward(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'num_warps': 4, 'constants': {'BLOCK': 16, 'PROGRAMS': 2112}},
        {'num_warps': 4, 'constants': {'BLOCK': 8, 'PROGRAMS': 1056}},
        {'num_warps': 4, 'constants': {'BLOCK': 4, 'PROGRAMS': 2112}},
        {'num_warps': 16, 'constants': {'BLOCK': 1, 'PROGRAMS': 528}},
        {'num_warps': 4, 'constants': {'BLOCK': 4, 'PROGRAMS': 528}},
    ]
    return _C[key__gate_backward(itemsize, width, length)]
