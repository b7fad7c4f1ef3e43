"""The files are Helion's: its own machinery reads ours, and we read what it generates."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helion
import pytest
import torch
from helion import _hardware
from helion.autotuner import aot_cache
from helion.autotuner.aot_cache import AOTAutotuneCache, find_heuristic_file
from helion.autotuner.aot_kernel import HeuristicKeyFunction, extract_key_features
from helion.autotuner.heuristic_generator import PerformanceTarget, generate_heuristic

from jagged.kernels import padded_add
from jagged.tuning import helion_runner, tables
from jagged.tuning.cases import default_cases
from jagged.tuning.configs import use_tables
from jagged.tuning.launch import Launchable

H200 = _hardware.HardwareInfo("cuda", "NVIDIA H200", "13.0", "sm90")
SOURCE = Path(padded_add.__file__)
TABLE = padded_add.FORWARD


@pytest.fixture(autouse=True)
def on_an_h200(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Helion believes that there is one."""
    for module in (_hardware, aot_cache):
        monkeypatch.setattr(module, "get_hardware_info", lambda device=None: H200)
    yield
    use_tables(None)
    AOTAutotuneCache.clear_caches()
    HeuristicKeyFunction.clear_cache()


def test_helion_finds_the_shipped_file() -> None:
    expected = SOURCE.parent / "_helion_aot_padded_add_cuda_sm90.py"
    assert find_heuristic_file(SOURCE, TABLE.name) == expected


def test_helion_takes_its_key_and_its_config_from_our_file(tmp_path: Path) -> None:
    kernel = padded_add._add_padded
    point = (2, 128, 256)
    aot = helion_runner.aot_kernel(kernel, lambda *_: point)
    values = torch.empty(64, 128, dtype=torch.bfloat16, device="meta")
    offsets = torch.empty(5, dtype=torch.int64, device="meta")
    cells = torch.empty(4, 16, 128, dtype=torch.bfloat16, device="meta")
    args = (values, offsets, cells, cells.view(64, 128))
    key = aot._key_fn(*args)
    module = tables.load(TABLE.find((9, 0), point).path)
    assert key == module.key__add_padded(*point)
    cache = AOTAutotuneCache.__new__(AOTAutotuneCache)
    bound = aot.bind(args)
    cache.kernel, cache.args, cache.data_dir = bound, args, tmp_path
    config = cache._get_heuristic_config(args)
    assert config is not None
    assert dict(config) == TABLE.find((9, 0), point).config.settings


def measure(folder: Path, points: dict[tuple[int, int, int], dict[str, float]]) -> Path:
    """A file of measurements as Helion's runner makes it: milliseconds of configs at points."""
    path = folder / "measurements.csv"
    with path.open("w", newline="") as file:
        names = ("kernel_name", "shape_hash", "config_hash", "config", "shape_features")
        writer = csv.DictWriter(file, [*names, "timing_ms"])
        writer.writeheader()
        for point, times in points.items():
            for config, milliseconds in times.items():
                row: dict[str, Any] = {"kernel_name": TABLE.name, "shape_hash": str(point)}
                row |= {"config_hash": config, "config": config, "timing_ms": milliseconds}
                row["shape_features"] = json.dumps(extract_key_features(point))
                writer.writerow(row)
    return path


def test_we_take_what_helion_generates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hardware, "get_hardware_info", lambda device=None: H200)
    small, large = ('{"block_sizes": [8, 32]}', '{"block_sizes": [64, 128], "num_warps": 8}')
    times = {
        (2, 32, 16): {small: 1.0, large: 2.0},
        (2, 128, 16): {small: 1.0, large: 2.0},
        (2, 128, 1024): {small: 2.0, large: 1.0},
    }
    copy = tmp_path / SOURCE.name  # as `python -m jagged.tuning helion` makes it
    copy.write_text("")
    generate_heuristic(
        measure(tmp_path, times),
        tmp_path / "run",
        target=PerformanceTarget(verbose=False, print_score_matrix=False),
        kernel_source_files={TABLE.name: str(copy)},
    )
    for folder, name in (
        (tmp_path, "_helion_aot_padded_add_cuda_sm90.py"),
        (tmp_path / "run", "heuristic__add_padded.py"),
    ):
        use_tables(folder)
        for point, best in {(2, 32, 8): small, (2, 128, 2048): large}.items():
            found = TABLE.find((9, 0), point)
            assert (found.source, found.path) == ("user", folder / name)
            assert found.config.settings == dict(helion.Config(**json.loads(best)))


def test_helion_can_tune_tables_of_one_kernel() -> None:
    ops = ("to_padded", "row_add", "padded_add", "token_layer_norm")
    cases = [case for op in ops for case in default_cases(op, "quick")]
    names = {str(unit.table) for unit in helion_runner.tunable(cases, (9, 0))}
    assert names == {
        "_copies._to_cells",
        "_copies._to_elements",
        "padded_add._add_padded",
        "row_add._add_row",
        "token_layer_norm._norm",
    }
    assert helion_runner.tunable(default_cases("hstu_attention", "quick"), (9, 0)) == []


def test_a_kernel_is_copied_so_that_helion_writes_beside_the_copy(tmp_path: Path) -> None:
    copy = helion_runner.copied(padded_add._add_padded, tmp_path)
    assert isinstance(copy, Launchable)
    assert Path(copy.function.__code__.co_filename) == tmp_path / "padded_add.py"
    assert copy is not padded_add._add_padded
