"""The config of the HSTU layers: presets, changes by name, and what it refuses."""

import copy
import dataclasses
import io
import pickle
from typing import Any

import numpy
import pytest
import torch

from jagged import HSTUMask
from jagged.modules import HSTUConfig

SHAPE: dict[str, Any] = {
    "embedding_dim": 50,
    "num_heads": 2,
    "attention_dim": 25,
    "hidden_dim": 20,
    "max_length": 211,
}


def test_the_presets_are_the_published_layers() -> None:
    config = HSTUConfig.research(**SHAPE, num_layers=8)
    assert dataclasses.asdict(config) == {
        **SHAPE,
        "num_layers": 8,
        "scale": None,
        "alpha": 1.0,
        "window": 0,
        "contextual": 0,
        "min_full": 0,
        "activation": "uvqk",
        "projection_bias": False,
        "projection_std": 0.02,
        "output_bias": True,
        "norm_affine": False,
        "group_norm": False,
        "concat_u": False,
        "dropout": 0.2,
        "eps": 1e-6,
        "position_bias": True,
        "time_buckets": 128,
        "time_bucket": "log",
        "time_divisor": 0.301,
    }
    assert config.score_scale() == 1 / 211
    config = HSTUConfig.production(**SHAPE)
    assert config == HSTUConfig(**SHAPE, dropout=0.3)
    assert (config.activation, config.projection_bias, config.norm_affine, config.concat_u) == (
        "u",
        True,
        True,
        True,
    )
    assert (config.alpha, config.output_bias, config.position_bias, config.time_buckets) == (
        None,
        False,
        False,
        0,
    )


def test_any_field_can_be_changed_by_name() -> None:
    config = HSTUConfig.research(**SHAPE, dropout=0.5, alpha=0.25, scale=0.125)
    assert (config.dropout, config.alpha, config.score_scale()) == (0.5, 0.25, 0.125)
    with pytest.raises(TypeError, match="unexpected keyword argument 'windows'"):
        HSTUConfig.research(**SHAPE, windows=3)


def test_windows_of_layers() -> None:
    config = HSTUConfig.production(**SHAPE, num_layers=2, window=(8, 0), contextual=3, min_full=2)
    assert config.layer(0).mask() == HSTUMask(8, 3, 2)
    assert config.layer(1).mask() == HSTUMask(0, 3, 2)
    assert config.layer(1).num_layers == 1
    with pytest.raises(IndexError, match=r"index must be in 0\.\.1, got 2"):
        config.layer(2)
    with pytest.raises(ValueError, match=r"window must be one int or one for each of 2 layers"):
        dataclasses.replace(config, window=(1, 2, 3))
    with pytest.raises(TypeError, match=r"window must be one int or a tuple .* got \[8, 0\]"):
        dataclasses.replace(config, window=[8, 0])  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"take the config of one layer with config.layer\(index\)"
    ):
        config.mask()


def test_copies_are_equal() -> None:
    config = HSTUConfig.research(**SHAPE)
    assert copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.dropout = 0.1  # type: ignore[misc]


def test_a_checkpoint_with_a_config_is_loaded_as_data() -> None:
    config = HSTUConfig.production(**SHAPE, num_layers=2, window=(3, 0))
    file = io.BytesIO()
    torch.save({"config": config, "mask": HSTUMask(window=2)}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert loaded == {"config": config, "mask": HSTUMask(window=2)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"max_length": None}, "scale must be given where max_length is not"),
        (
            {"max_length": None, "scale": 0.1, "position_bias": True},
            "max_length must be given with position_bias",
        ),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"activation": "relu"}, 'activation must be "uvqk" or "u", got \'relu\''),
        ({"time_buckets": -1}, "time_buckets must not be negative, got -1"),
        ({"window": -1}, "window must not be negative, got -1"),
        ({"contextual": -1}, "contextual must not be negative, got -1"),
        ({"scale": float("nan")}, "scale must be finite, got nan"),
        ({"alpha": float("inf")}, "alpha must be finite, got inf"),
        ({"eps": float("nan")}, "eps must be finite, got nan"),
        ({"eps": -1.0}, "eps must not be negative, got -1"),
        ({"projection_std": -1.0}, "projection_std must not be negative, got -1"),
    ],
)
def test_messages(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HSTUConfig(**{**SHAPE, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embedding_dim": 4.0}, "embedding_dim must be a Python int .* got float"),
        ({"max_length": 5.5}, "max_length must be a Python int .* got float"),
        ({"time_buckets": 2.5}, "time_buckets must be a Python int .* got float"),
        ({"scale": torch.tensor(0.5)}, "scale must be a Python number, got Tensor"),
        ({"scale": True}, "scale must be a Python number, got bool"),
        ({"dropout": None}, "dropout must be a Python number, got NoneType"),
    ],
)
def test_types(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        HSTUConfig(**{**SHAPE, **change})


def test_numbers_of_numpy_become_those_of_python() -> None:
    """torch.load takes no others for data."""
    given = {name: numpy.int64(value) for name, value in SHAPE.items()}
    windows = (numpy.int32(3), numpy.int32(0))
    config = HSTUConfig(**given, num_layers=2, scale=numpy.float32(0.5), window=windows)  # type: ignore[arg-type]
    assert config == HSTUConfig(**SHAPE, num_layers=2, scale=0.5, window=(3, 0))
    kinds = {type(value) for value in dataclasses.asdict(config).values()}
    assert kinds == {int, float, bool, str, tuple, type(None)}
    assert isinstance(config.window, tuple)
    assert [type(window) for window in config.window] == [int, int]
    assert type(HSTUMask(numpy.int64(3)).window) is int  # type: ignore[arg-type]
