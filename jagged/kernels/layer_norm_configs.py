"""Configurations of the layer norm, see `jagged.tuning.configs`."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [8], "num_warps": 1},
        },
        (2, 32, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [32], "num_warps": 1},
        },
        (2, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 16},
            "settings": {"block_sizes": [32], "num_warps": 1},
        },
        (2, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 64},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [2], "num_warps": 1},
        },
        (2, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 2},
            "settings": {"block_sizes": [32], "num_warps": 1},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 8},
            "settings": {"block_sizes": [32], "num_warps": 4},
        },
        (2, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 16},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (2, 128, 512): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 32},
            "settings": {"block_sizes": [32], "num_warps": 16},
        },
        (2, 512, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 2},
            "settings": {"block_sizes": [32], "num_warps": 4},
        },
        (2, 4096, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 2},
            "settings": {"block_sizes": [32], "num_warps": 16},
        },
        (4, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [8], "num_warps": 1},
        },
        (4, 32, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [32], "num_warps": 1},
        },
        (4, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 16},
            "settings": {"block_sizes": [32], "num_warps": 1},
        },
        (4, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 64},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (4, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8},
            "settings": {"block_sizes": [1], "num_warps": 1},
        },
        (4, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 4},
            "settings": {"block_sizes": [32], "num_warps": 1},
        },
        (4, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (4, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 16},
            "settings": {"block_sizes": [32], "num_warps": 16},
        },
        (4, 512, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 2},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (4, 4096, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 2},
            "settings": {"block_sizes": [32], "num_warps": 16},
        },
    },
}
BACKWARD: Table = {
    (9, 0): {
        (2, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 4, "ROWS": 16, "TURNS": 16},
            "settings": {"num_warps": 2},
        },
        (2, 32, 16): {
            "form": "rows",
            "constants": {"BLOCK": 8, "ROWS": 16, "TURNS": 8},
            "settings": {"num_warps": 2},
        },
        (2, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 32, "TURNS": 4},
            "settings": {"block_sizes": [32], "num_warps": 2},
        },
        (2, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 128, "TURNS": 1},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (2, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 4, "ROWS": 4, "TURNS": 16},
            "settings": {"num_warps": 2},
        },
        (2, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 2, "TURNS": 8},
            "settings": {"block_sizes": [32], "num_warps": 1},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 8, "TURNS": 4},
            "settings": {"block_sizes": [32], "num_warps": 2},
        },
        (2, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 32, "TURNS": 1},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (2, 128, 512): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 64, "TURNS": 1},
            "settings": {"block_sizes": [32], "num_warps": 16},
        },
        (2, 512, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 2, "TURNS": 1},
            "settings": {"block_sizes": [32], "num_warps": 4},
        },
        (2, 4096, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 2, "TURNS": 1},
            "settings": {"block_sizes": [32], "num_warps": 16},
        },
        (4, 32, 4): {
            "form": "rows",
            "constants": {"BLOCK": 4, "ROWS": 16, "TURNS": 16},
            "settings": {"num_warps": 2},
        },
        (4, 32, 16): {
            "form": "rows",
            "constants": {"BLOCK": 8, "ROWS": 16, "TURNS": 8},
            "settings": {"num_warps": 2},
        },
        (4, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 32, "TURNS": 4},
            "settings": {"block_sizes": [32], "num_warps": 2},
        },
        (4, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 128, "TURNS": 1},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (4, 128, 4): {
            "form": "rows",
            "constants": {"BLOCK": 8, "ROWS": 1, "TURNS": 16},
            "settings": {"num_warps": 1},
        },
        (4, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 2, "TURNS": 8},
            "settings": {"block_sizes": [32], "num_warps": 1},
        },
        (4, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 8, "TURNS": 2},
            "settings": {"block_sizes": [32], "num_warps": 2},
        },
        (4, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 64, "TURNS": 1},
            "settings": {"block_sizes": [32], "num_warps": 16},
        },
        (4, 512, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 2, "TURNS": 1},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (4, 4096, 64): {
            "form": "row",
            "constants": {"DEEP": 1, "BLOCK": 2, "TURNS": 1},
            "settings": {"block_sizes": [32], "num_warps": 16},
        },
    },
}
