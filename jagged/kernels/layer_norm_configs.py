"""Configurations of the layer norm, see `jagged.tuning.configs`."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [4, 8, 8, 8], "num_warps": 4},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"BLOCK": 16},
            "settings": {"block_sizes": [32], "num_warps": 4},
        },
    },
}
BACKWARD: Table = {
    (9, 0): {
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8, "ROWS": 4},
            "settings": {"block_sizes": [8, 8], "num_warps": 4},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"BLOCK": 16},
            "settings": {"block_sizes": [32], "num_warps": 4},
        },
    },
}
