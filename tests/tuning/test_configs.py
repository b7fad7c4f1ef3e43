"""Where a config comes from, and what a lookup costs."""

import timeit
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from jagged.tuning import configs, tables
from jagged.tuning.configs import Config, ConfigTable, point_of, use_tables
from tests.tuning.helpers import ship

POINT = (2, 128, 64)


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """Where the kernel file of a made-up table stands."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    return folder


@pytest.fixture
def table(shipped: Path) -> ConfigTable:
    return ConfigTable(str(shipped / "made_up.py"), "kernel")


@pytest.fixture(autouse=True)
def own_folder() -> Iterator[None]:
    yield
    use_tables(None)


def warps(table: ConfigTable, capability: tuple[int, int]) -> tuple[object, str]:
    found = table.find(capability, POINT)
    return found.config.settings["num_warps"], found.source


def test_a_capability_has_its_own_table_else_the_nearest_older(
    table: ConfigTable, shipped: Path
) -> None:
    ship(shipped, 1, (8, 0))
    ship(shipped, 2, (9, 0))
    ship(shipped, 4, (12, 3))
    assert warps(table, (9, 0)) == (2, "shipped")
    assert warps(table, (12, 3)) == (4, "shipped")
    assert warps(table, (10, 0)) == (2, "older")
    assert warps(table, (8, 9)) == (1, "older")
    assert warps(table, (7, 5)) == (1, "default")
    assert warps(table, (0, 0)) == (1, "shipped")  # Triton's interpreter


def test_the_users_folder_comes_first(
    table: ConfigTable, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(shipped, 1, (9, 0))
    named, chosen = tmp_path / "named", tmp_path / "chosen"
    ship(named, 2, (9, 0))
    ship(chosen, 4, (8, 0))
    monkeypatch.setenv("HELION_HEURISTIC_DIR", str(named))
    assert warps(table, (9, 0)) == (2, "user")
    assert warps(table, (8, 9)) == (1, "default")  # the user's is for a newer GPU
    use_tables(chosen)
    assert warps(table, (9, 0)) == (4, "user")
    use_tables(None)
    assert warps(table, (9, 0)) == (2, "user")
    monkeypatch.delenv("HELION_HEURISTIC_DIR")
    assert warps(table, (9, 0)) == (1, "shipped")


def test_a_user_folder_without_the_table_is_passed_over(
    table: ConfigTable, shipped: Path, tmp_path: Path
) -> None:
    ship(shipped, 1, (9, 0))
    tables.write(tmp_path, "made_up", (9, 0), {"another": {(2, 1, 1): {"num_warps": 8}}})
    use_tables(tmp_path)
    assert warps(table, (9, 0)) == (1, "shipped")


def test_a_file_of_helions_runner_in_the_users_folder(
    table: ConfigTable, shipped: Path, tmp_path: Path
) -> None:
    ship(shipped, 1, (9, 0))
    (tmp_path / "heuristic_kernel.py").write_text(
        "def key_kernel(*args):\n    return int(args[1] > 64)\n\n\n"
        "def autotune_kernel(*args):\n    return {'num_warps': [2, 16][key_kernel(*args)]}\n"
    )
    use_tables(tmp_path)
    assert warps(table, (9, 0)) == (16, "user")


def test_a_folder_takes_effect_at_once(table: ConfigTable, shipped: Path, tmp_path: Path) -> None:
    ship(shipped, 1, (9, 0))
    values = torch.empty(64, 128)
    assert table.pick(values, 128, 4).settings["num_warps"] == 1
    ship(tmp_path, 2, (0, 0))
    use_tables(tmp_path)
    assert table.pick(values, 128, 4).settings["num_warps"] == 2


def test_a_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="folder must be a folder with tables"):
        use_tables(tmp_path / "absent")


def test_a_named_folder_that_is_none_is_told_once(
    table: ConfigTable, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(shipped, 1, (9, 0))
    monkeypatch.setattr(configs, "_warned", set())
    monkeypatch.setenv("HELION_HEURISTIC_DIR", str(tmp_path / "absent"))
    with pytest.warns(UserWarning, match=r"HELION_HEURISTIC_DIR must name a folder .*/absent"):
        assert warps(table, (9, 0)) == (1, "shipped")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warps(table, (9, 0)) == (1, "shipped")
    ship(tmp_path / "absent", 2, (9, 0))  # the tuner has made it by now
    assert warps(table, (9, 0)) == (2, "user")


def test_no_table_at_all_is_an_error(table: ConfigTable) -> None:
    with pytest.raises(FileNotFoundError, match=r"no table kernel in .*made_up_cuda_sm90"):
        table.find((9, 0), POINT)


def test_the_default_warns_once(
    table: ConfigTable, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(shipped, 1, (9, 0))
    monkeypatch.setattr(configs, "_warned", set())
    monkeypatch.setattr(configs, "capability_of", lambda device: (7, 5))
    values = torch.empty(64, 128)
    with pytest.warns(UserWarning, match=r"no configs for this GPU.*jagged\.tuning tune"):
        table.pick(values, 128, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.pick(values, 128, 64)


def test_equal_configs_are_one_object(table: ConfigTable) -> None:
    one = table.config({"block_sizes": [8], "num_warps": 2})
    assert table.config({"num_warps": 2, "block_sizes": [8]}) is one
    constants = {"A": 1, "B": 2}
    first = table.config({"constants": constants})
    assert table.config({"constants": dict(reversed(constants.items()))}) is not first


def test_a_config_as_a_dictionary() -> None:
    plain = {"block_sizes": [8], "num_warps": 2, "form": "row", "constants": {"DEEP": 2}}
    config = Config.from_dict(plain)
    assert (config.settings, config.form) == ({"block_sizes": [8], "num_warps": 2}, "row")
    assert config.as_dict() == plain
    assert Config.from_dict({"num_warps": 2}).as_dict() == {"num_warps": 2}


def test_a_lookup_takes_less_than_two_microseconds(table: ConfigTable, shipped: Path) -> None:
    ship(shipped, 1, (9, 0))
    values = torch.empty(4096, 128)
    took = min(timeit.repeat(lambda: table.pick(values, 128, 16), number=1000, repeat=30)) / 1000
    assert took < 2e-6


def test_a_table_may_tell_widths_of_one_power_of_two_apart(
    table: ConfigTable, tmp_path: Path
) -> None:
    (tmp_path / "heuristic_kernel.py").write_text(
        "def autotune_kernel(itemsize, width, length):\n"
        "    return {'num_warps': 2 if width < 100 else 16}\n"
    )
    use_tables(tmp_path)
    found = [table.pick(torch.empty(64, width), width, 4) for width in (96, 120, 96)]
    assert [config.settings["num_warps"] for config in found] == [2, 16, 2]


def test_lengths_near_one_power_of_two_share_a_lookup(table: ConfigTable, shipped: Path) -> None:
    ship(shipped, 1, (9, 0))
    for total in range(91, 182):
        table.pick(torch.empty(total, 100), 100, 1)
    assert len(table._picked) == 1


def test_a_mean_length_counts_as_the_nearest_power_of_two() -> None:
    lengths = {mean: point_of(torch.empty(mean * 8, 1), 1, 8)[2] for mean in (1, 3, 90, 101, 254)}
    assert lengths == {1: 1, 3: 4, 90: 64, 101: 128, 254: 256}
    assert point_of(torch.empty(4, 1), 1, 8)[2] == 0  # mostly empty rows
    assert point_of(torch.empty(0, 1), 1, 0)[2] == 0
