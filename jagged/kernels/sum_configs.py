"""Configurations of sum and mean, see `jagged.tuning.configs`."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 32, 4): {"settings": {"block_sizes": [8, 32, 4], "num_warps": 1}},
        (2, 32, 16): {"settings": {"block_sizes": [4, 32, 8], "num_warps": 1}},
        (2, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 16},
            "settings": {"block_sizes": [32], "num_warps": 2},
        },
        (2, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 64},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (2, 128, 4): {"settings": {"block_sizes": [8, 128, 4], "num_warps": 4}},
        (2, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 8, "BLOCK": 2},
            "settings": {"block_sizes": [128], "num_warps": 1},
        },
        (2, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 2, "BLOCK": 8},
            "settings": {"block_sizes": [128], "num_warps": 2},
        },
        (2, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 16},
            "settings": {"block_sizes": [64], "num_warps": 4},
        },
        (2, 128, 512): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 16},
            "settings": {"block_sizes": [128], "num_warps": 8},
        },
        (4, 32, 4): {"settings": {"block_sizes": [8, 32, 4], "num_warps": 1}},
        (4, 32, 16): {"settings": {"block_sizes": [4, 32, 8], "num_warps": 1}},
        (4, 32, 64): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 16},
            "settings": {"block_sizes": [32], "num_warps": 2},
        },
        (4, 32, 512): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 64},
            "settings": {"block_sizes": [32], "num_warps": 8},
        },
        (4, 128, 4): {"settings": {"block_sizes": [2, 128, 8], "num_warps": 1}},
        (4, 128, 16): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 2},
            "settings": {"block_sizes": [128], "num_warps": 2},
        },
        (4, 128, 64): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 8},
            "settings": {"block_sizes": [64], "num_warps": 4},
        },
        (4, 128, 256): {
            "form": "row",
            "constants": {"DEEP": 4, "BLOCK": 8},
            "settings": {"block_sizes": [64], "num_warps": 4},
        },
    },
}
BACKWARD: Table = {
    (9, 0): {
        (2, 32, 64): {"settings": {"block_sizes": [128, 32], "num_warps": 2}},
        (2, 128, 64): {"settings": {"block_sizes": [32, 128], "num_warps": 2}},
        (4, 32, 64): {"settings": {"block_sizes": [64, 32], "num_warps": 2}},
        (4, 128, 64): {"settings": {"block_sizes": [16, 128], "num_warps": 2}},
    },
}
