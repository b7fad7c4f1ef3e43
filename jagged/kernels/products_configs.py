"""Configurations of the jagged products, see `jagged.tuning.configs`.

Block sizes: of TIMES_MATRICES columns, elements and, unless there is a form, K; of TRANSPOSED
lines, columns, elements; of COMBINE features. Measured on an H200, except COMBINE and width 256.
"""

from jagged.tuning.configs import Table

TIMES_MATRICES: Table = {
    (9, 0): {
        (2, 128, 64): {
            "form": "whole",
            "settings": {"block_sizes": [128, 64], "num_warps": 4, "num_stages": 1},
        },
        (2, 128, 4): {
            "form": "turned",
            "settings": {"block_sizes": [128, 16], "num_warps": 4, "num_stages": 2},
        },
        (2, 256, 256): {
            "settings": {"block_sizes": [128, 64, 64], "num_warps": 4, "num_stages": 3},
        },
        (4, 128, 256): {
            "settings": {"block_sizes": [128, 32, 32], "num_warps": 4, "num_stages": 2},
        },
    },
}
TRANSPOSED: Table = {
    (9, 0): {
        (2, 128, 64): {
            "settings": {"block_sizes": [128, 128, 32], "num_warps": 4, "num_stages": 4},
        },
        (2, 128, 4): {"settings": {"block_sizes": [128, 128, 16], "num_warps": 4, "num_stages": 2}},
        (4, 128, 256): {
            "settings": {"block_sizes": [64, 128, 16], "num_warps": 4, "num_stages": 2},
        },
    },
}
COMBINE: Table = {
    (9, 0): {
        (4, 128, 256): {"settings": {"block_sizes": [512], "num_warps": 4}},
    },
}
