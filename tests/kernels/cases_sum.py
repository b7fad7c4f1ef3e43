from jagged.tuning.configs import Config
from tests.kernels.cases import Case

CASES = [
    Case(
        op="sum",
        direction="forward",
        arguments=lambda make: (make.values(make.width), make.offsets()),
        forms={
            "one-trip": {"FORWARD": Config({"block_sizes": [8, 32, 64]})},
            "trips": {"FORWARD": Config({"block_sizes": [2, 16, 8]})},
        },
    ),
    Case(
        op="sum",
        direction="backward",
        arguments=lambda make: (make.per_row(make.width), make.offsets(), make.total),
        forms={
            "large": {"BACKWARD": Config({"block_sizes": [64, 32]})},
            "small": {"BACKWARD": Config({"block_sizes": [8, 16]})},
        },
    ),
]
