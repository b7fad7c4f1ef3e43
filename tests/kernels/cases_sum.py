from jagged.tuning.configs import Config
from tests.kernels.cases import Case

FORWARD = {
    "row": {"FORWARD": Config({"block_sizes": [32]}, "row", {"DEEP": 2, "BLOCK": 8})},
    "one-trip": {"FORWARD": Config({"block_sizes": [8, 32, 64]})},
    "trips": {"FORWARD": Config({"block_sizes": [2, 16, 8]})},
}
BACKWARD = {
    "large": {"BACKWARD": Config({"block_sizes": [64, 32]})},
    "small": {"BACKWARD": Config({"block_sizes": [8, 16]})},
}
CASES = [
    Case(op, direction, arguments, forms)
    for op in ("sum", "mean")
    for direction, arguments, forms in (
        ("forward", lambda make: (make.values(make.width), make.offsets()), FORWARD),
        ("backward", lambda make: (make.per_row(make.width), make.offsets(), make.total), BACKWARD),
    )
]
