"""Configurations of the softmax, see `jagged.tuning.configs`."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 4},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (2, 32, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 1},
        },
        (2, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 1},
        },
        (2, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 64},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 4},
            "settings": {"block_sizes": [2, 128], "num_warps": 1},
        },
        (2, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 2},
            "settings": {"block_sizes": [128, 32], "num_warps": 1},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 4},
            "settings": {"block_sizes": [128, 32], "num_warps": 2},
        },
        (2, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 16},
            "settings": {"block_sizes": [64, 32], "num_warps": 4},
        },
        (2, 128, 512): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 32},
            "settings": {"block_sizes": [64, 32], "num_warps": 8},
        },
        (4, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 4},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (4, 32, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 1},
        },
        (4, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 1},
        },
        (4, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 64},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (4, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [1, 128], "num_warps": 1},
        },
        (4, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 4},
            "settings": {"block_sizes": [128, 32], "num_warps": 2},
        },
        (4, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 8},
            "settings": {"block_sizes": [64, 32], "num_warps": 4},
        },
        (4, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 64},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
    },
}
BACKWARD: Table = {
    (9, 0): {
        (2, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (2, 32, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 1},
        },
        (2, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 16},
            "settings": {"block_sizes": [32, 32], "num_warps": 2},
        },
        (2, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 64},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [2, 128], "num_warps": 1},
        },
        (2, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 2},
            "settings": {"block_sizes": [128, 32], "num_warps": 1},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 16},
            "settings": {"block_sizes": [64, 32], "num_warps": 4},
        },
        (2, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 16},
            "settings": {"block_sizes": [128, 32], "num_warps": 8},
        },
        (2, 128, 512): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 16},
            "settings": {"block_sizes": [128, 32], "num_warps": 8},
        },
        (4, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (4, 32, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 1},
        },
        (4, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 16},
            "settings": {"block_sizes": [32, 32], "num_warps": 2},
        },
        (4, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 64},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (4, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [1, 128], "num_warps": 1},
        },
        (4, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 8},
            "settings": {"block_sizes": [64, 32], "num_warps": 1},
        },
        (4, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 16},
            "settings": {"block_sizes": [64, 32], "num_warps": 4},
        },
        (4, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 128},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
    },
}
