"""Configs of softmax.py on CUDA devices of compute capability 9.0.

Written by `python -m jagged.tuning`; the format is described in `jagged/tuning/tables.py`.
"""


POINTS_forward = {
    (2, 32, 4): 0,
    (2, 32, 16): 1,
    (2, 32, 64): 1,
    (2, 32, 512): 2,
    (2, 128, 4): 3,
    (2, 128, 16): 4,
    (2, 128, 64): 5,
    (2, 128, 128): 5,
    (2, 128, 256): 6,
    (2, 128, 512): 7,
    (4, 32, 4): 0,
    (4, 32, 16): 1,
    (4, 32, 64): 1,
    (4, 32, 512): 8,
    (4, 128, 4): 3,
    (4, 128, 16): 9,
    (4, 128, 64): 10,
    (4, 128, 128): 11,
    (4, 128, 256): 8,
}


def key_forward(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if length < 16:
        if width < 128:
            return 0
        return 3
    if length < 128:
        if width < 128:
            return 1
        if itemsize < 4:
            if length < 64:
                return 4
            return 5
        if length < 64:
            return 9
        return 10
    if length < 256:
        if width < 64:
            return 1
        if itemsize < 4:
            return 5
        return 11
    if itemsize < 4:
        if width < 64:
            return 2
        if length < 512:
            return 6
        if width < 128:
            return 2
        return 7
    return 8


def autotune_forward(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [32, 32], 'num_warps': 4, 'form': 'rows', 'constants': {'BLOCK': 4}},
        {'block_sizes': [32, 32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 8}},
        {'block_sizes': [32, 32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 64}},
        {'block_sizes': [1, 128], 'num_warps': 1, 'form': 'rows', 'constants': {'BLOCK': 8}},
        {'block_sizes': [128, 32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 2}},
        {'block_sizes': [64, 32], 'num_warps': 2, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 8}, 'loop_orders': [[1, 0]], 'range_num_stages': [0, 3, 0, 0]},
        {'block_sizes': [64, 32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 16}, 'loop_orders': [[1, 0]]},
        {'block_sizes': [32, 32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 32}, 'loop_orders': [[1, 0]]},
        {'block_sizes': [32, 32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 64}, 'maxnreg': 64},
        {'block_sizes': [128, 32], 'num_warps': 2, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 4}, 'maxnreg': 72},
        {'block_sizes': [32, 32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 16}, 'loop_orders': [[1, 0]]},
        {'block_sizes': [32, 32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 4, 'BLOCK': 16}, 'loop_orders': [[1, 0]]},
    ]
    return _C[key_forward(itemsize, width, length)]


POINTS_backward = {
    (2, 32, 4): 0,
    (2, 32, 16): 1,
    (2, 32, 64): 2,
    (2, 32, 512): 3,
    (2, 128, 4): 4,
    (2, 128, 16): 5,
    (2, 128, 64): 6,
    (2, 128, 128): 6,
    (2, 128, 256): 7,
    (2, 128, 512): 8,
    (4, 32, 4): 0,
    (4, 32, 16): 1,
    (4, 32, 64): 2,
    (4, 32, 512): 3,
    (4, 128, 4): 9,
    (4, 128, 16): 10,
    (4, 128, 64): 11,
    (4, 128, 128): 12,
    (4, 128, 256): 12,
    (4, 128, 512): 13,
}


def key_backward(itemsize: int, width: int, length: int) -> int:
    """Index of the config."""
    if length < 16:
        if width < 128:
            return 0
        if itemsize < 4:
            return 4
        return 9
    if length < 64:
        if width < 128:
            return 1
        if itemsize < 4:
            return 5
        return 10
    if width < 64:
        if length < 256:
            return 2
        return 3
    if length < 128:
        if width < 128:
            return 2
        if itemsize < 4:
            return 6
        return 11
    if length < 512:
        if itemsize < 4:
            if length < 256:
                return 6
            return 7
        return 12
    if width < 128:
        return 3
    if itemsize < 4:
        return 8
    return 13


def autotune_backward(itemsize: int, width: int, length: int) -> dict:
    """The config."""
    _C = [
        {'block_sizes': [32, 32], 'num_warps': 4, 'form': 'rows', 'constants': {'BLOCK': 8}},
        {'block_sizes': [32, 32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 8}},
        {'block_sizes': [32, 32], 'num_warps': 2, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 16}},
        {'block_sizes': [32, 32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 64}},
        {'block_sizes': [2, 128], 'num_warps': 1, 'form': 'rows', 'constants': {'BLOCK': 8}},
        {'block_sizes': [128, 32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 2}},
        {'block_sizes': [64, 32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 16}, 'loop_orders': [[1, 0]]},
        {'block_sizes': [64, 32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 32}, 'loop_orders': [[1, 0]]},
        {'block_sizes': [32, 32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 64}, 'loop_orders': [[1, 0]]},
        {'block_sizes': [1, 128], 'num_warps': 1, 'form': 'rows', 'constants': {'BLOCK': 8}},
        {'block_sizes': [64, 32], 'num_warps': 1, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 8}},
        {'block_sizes': [32, 32], 'num_warps': 4, 'form': 'row', 'constants': {'DEEP': 2, 'BLOCK': 16}, 'loop_orders': [[1, 0]]},
        {'block_sizes': [32, 32], 'num_warps': 8, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 64}, 'loop_orders': [[1, 0]], 'maxnreg': 64},
        {'block_sizes': [32, 32], 'num_warps': 16, 'form': 'row', 'constants': {'DEEP': 1, 'BLOCK': 64}, 'loop_orders': [[1, 0]]},
    ]
    return _C[key_backward(itemsize, width, length)]
