"""Configurations of the softmax, see `jagged.tuning.configs`."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [4, 128, 8, 8], "num_warps": 4},
        },
        (2, 128, 16): {
            "form": "rows",
            "constants": {"BLOCK": 32},
            "settings": {"block_sizes": [2, 64, 8, 8], "num_warps": 4},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"BLOCK": 16},
            "settings": {"block_sizes": [64, 32], "num_warps": 2},
        },
    },
}
BACKWARD: Table = {
    (9, 0): {
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [4, 128, 8, 8], "num_warps": 4},
        },
        (2, 128, 16): {
            "form": "rows",
            "constants": {"BLOCK": 32},
            "settings": {"block_sizes": [2, 64, 8, 8], "num_warps": 4},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"BLOCK": 16},
            "settings": {"block_sizes": [64, 32], "num_warps": 2},
        },
    },
}
