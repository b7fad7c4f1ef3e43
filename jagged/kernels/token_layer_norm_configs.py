"""Configurations of the token layer norm, see `jagged.tuning.configs`."""

from jagged.tuning.configs import Table

FORWARD: Table = {
    (9, 0): {
        (2, 128, 1): {"settings": {"block_sizes": [16], "num_warps": 4}},
    },
}
BACKWARD: Table = {
    (9, 0): {
        (2, 128, 1): {"constants": {"BLOCK": 16}, "settings": {"num_warps": 4}},
    },
}
