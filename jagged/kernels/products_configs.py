"""Configurations of the jagged products, see `jagged.tuning.configs`.

Block sizes: of TIMES_MATRICES columns, elements and, unless `whole`, K; of TRANSPOSED lines,
columns, elements; of COMBINE features.
"""

from jagged.tuning.configs import Table

TIMES_MATRICES: Table = {
    (9, 0): {
        (2, 128, 256): {
            "form": "whole",
            "settings": {"block_sizes": [128, 64], "num_warps": 4, "num_stages": 3},
        },
        (2, 256, 256): {
            "settings": {"block_sizes": [128, 64, 64], "num_warps": 4, "num_stages": 3},
        },
        (4, 128, 256): {
            "settings": {"block_sizes": [64, 64, 16], "num_warps": 4, "num_stages": 2},
        },
    },
}
TRANSPOSED: Table = {
    (9, 0): {
        (2, 128, 256): {
            "settings": {"block_sizes": [128, 128, 64], "num_warps": 8, "num_stages": 3},
        },
        (4, 128, 256): {
            "settings": {"block_sizes": [64, 64, 16], "num_warps": 4, "num_stages": 2},
        },
    },
}
COMBINE: Table = {
    (9, 0): {
        (4, 128, 256): {"settings": {"block_sizes": [512], "num_warps": 4}},
    },
}
