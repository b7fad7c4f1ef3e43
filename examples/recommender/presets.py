"""Settings that were chosen for known data, by the validation part alone: `--preset NAME`."""

from collections.abc import Mapping
from typing import Any

# Amazon Beauty, 5-core (McAuley et al., SIGIR 2015): 22,363 users, 12,101 items, 198,502 events.
BEAUTY: dict[str, Any] = {
    "max_length": 50,
    "width": 256,
    "heads": 2,
    "layers": 2,
    "dropout": 0.4,
    "input_dropout": 0.5,
    "loss": "full",
    "repeat_bias": True,
    "temperature": 0.1,
    "learning_rate": 2e-3,
    "token_budget": 2048,
    "epochs": 30,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {"beauty": BEAUTY}
