"""Configurations of the softmax, see `jagged.tuning.configs`."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (2, 32, 16): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 8},
            "settings": {"block_sizes": [32, 32], "num_warps": 1},
        },
        (2, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 32},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (2, 32, 256): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 64},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [8, 128], "num_warps": 4},
        },
        (2, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 2},
            "settings": {"block_sizes": [128, 32], "num_warps": 1},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 32},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (2, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 64},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (4, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [16, 32], "num_warps": 4},
        },
        (4, 32, 16): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 4},
            "settings": {"block_sizes": [32, 32], "num_warps": 1},
        },
        (4, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 16},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (4, 32, 256): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 32},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (4, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [4, 128], "num_warps": 4},
        },
        (4, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 1},
            "settings": {"block_sizes": [128, 32], "num_warps": 1},
        },
        (4, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 16},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (4, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 32},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
    },
}
BACKWARD: Table = {
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
            "constants": {"DEEP": 1, "BLOCK": 32},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (2, 32, 256): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 64},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 4},
            "settings": {"block_sizes": [8, 128], "num_warps": 4},
        },
        (2, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 2},
            "settings": {"block_sizes": [128, 32], "num_warps": 1},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 32},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (2, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 64},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (4, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 4},
            "settings": {"block_sizes": [16, 32], "num_warps": 4},
        },
        (4, 32, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 4},
            "settings": {"block_sizes": [32, 32], "num_warps": 1},
        },
        (4, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 16},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (4, 32, 256): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 32},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
        (4, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 4},
            "settings": {"block_sizes": [4, 128], "num_warps": 4},
        },
        (4, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 1},
            "settings": {"block_sizes": [128, 32], "num_warps": 1},
        },
        (4, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 16},
            "settings": {"block_sizes": [32, 32], "num_warps": 4},
        },
        (4, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 32},
            "settings": {"block_sizes": [32, 32], "num_warps": 8},
        },
    },
}
