"""Configs of _rows.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS_reduce_rows = {
    (2, 32, 4): 0,
    (2, 32, 16): 1,
    (2, 32, 64): 2,
    (2, 32, 512): 3,
    (2, 128, 4): 4,
    (2, 128, 16): 5,
    (2, 128, 64): 6,
    (2, 128, 128): 7,
    (2, 128, 256): 7,
    (2, 128, 512): 8,
    (4, 32, 4): 0,
    (4, 32, 16): 1,
    (4, 32, 64): 2,
    (4, 32, 512): 3,
    (4, 128, 4): 9,
    (4, 128, 16): 10,
    (4, 128, 64): 11,
    (4, 128, 256): 11,
}


def key_reduce_rows(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if width < 128:
        if length < 16:
            return 0
        if length < 64:
            return 1
        if width < 64:
            if length < 256:
                return 2
            return 3
        if length < 128:
            return 2
        if length < 512:
            if itemsize < 4:
                return 7
            if length < 256:
                return 2
            return 11
        return 3
    if itemsize < 4:
        if length < 16:
            return 4
        if length < 64:
            return 5
        if length < 128:
            return 6
        if length < 512:
            return 7
        return 8
    if length < 16:
        return 9
    if length < 64:
        return 10
    return 11


def autotune_reduce_rows(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [8, 32, 4], 'num_warps': 1},
        {'block_sizes': [4, 32, 8], 'num_warps': 1},
        {'block_sizes': [32], 'num_warps': 2, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 16}},
        {'block_sizes': [32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 64}},
        {'block_sizes': [8, 128, 4], 'num_warps': 4},
        {'block_sizes': [128], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 8, 'BLOCK': 2}},
        {'block_sizes': [128], 'num_warps': 2, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 8}},
        {'block_sizes': [128], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 8}},
        {'block_sizes': [128], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 16}},
        {'block_sizes': [2, 128, 8], 'num_warps': 1},
        {'block_sizes': [128], 'num_warps': 2, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 2}},
        {'block_sizes': [64], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 8}},
    ]
    return _C[key_reduce_rows(itemsize, width, length)]


POINTS__spread_rows = {
    (2, 32, 64): 0,
    (2, 128, 64): 1,
    (4, 32, 64): 2,
    (4, 128, 64): 3,
}


def key__spread_rows(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if itemsize < 4:
        if width < 128:
            return 0
        return 1
    if width < 128:
        return 2
    return 3


def autotune__spread_rows(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [128, 32], 'num_warps': 2},
        {'block_sizes': [32, 128], 'num_warps': 2},
        {'block_sizes': [64, 32], 'num_warps': 2},
        {'block_sizes': [16, 128], 'num_warps': 2},
    ]
    return _C[key__spread_rows(itemsize, width, length)]
