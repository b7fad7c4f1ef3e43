"""Files of tables: written, read back, added to."""

import itertools
from pathlib import Path

import pytest

from jagged.tuning import tables
from jagged.tuning.configs import ConfigTable
from jagged.tuning.decision import distance
from tests.tuning.helpers import ALL_TABLES

SMALL = {"block_sizes": [16], "num_warps": 1}
LARGE = {"block_sizes": [64, 2], "num_warps": 8, "form": "row", "constants": {"DEEP": 2, "B": 4}}
ENTRIES = {(2, 32, 4): SMALL, (2, 32, 256): LARGE, (4, 32, 4): SMALL}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tables.write(
        tmp_path, "softmax", (9, 0), {"forward": ENTRIES, "_other": {(2, 1, 1): {}}}
    )
    assert path.name == "_helion_aot_softmax_cuda_sm90.py"
    assert tables.entries(path, "forward") == ENTRIES
    assert tables.names(path) == ["forward", "_other"]
    assert tables.choice(path, "forward", (2, 64, 8)) == SMALL
    assert tables.choice(path, "forward", (2, 64, 1024)) == LARGE
    assert tables.choice(path, "absent", (2, 64, 1024)) is None
    assert list(tables.entries(path, "forward")[2, 32, 256]["constants"]) == ["DEEP", "B"]


def test_equal_configs_are_listed_once(tmp_path: Path) -> None:
    path = tables.write(tmp_path, "softmax", (9, 0), {"forward": ENTRIES})
    assert path.read_text().count("'num_warps': 1") == 1


def test_other_tables_of_a_file_are_kept(tmp_path: Path) -> None:
    tables.write(tmp_path, "softmax", (9, 0), {"forward": ENTRIES})
    path = tables.write(tmp_path, "softmax", (9, 0), {"backward": {(2, 1, 1): SMALL}})
    assert tables.entries(path, "forward") == ENTRIES
    assert tables.entries(path, "backward") == {(2, 1, 1): SMALL}


def test_a_change_is_seen(tmp_path: Path) -> None:
    path = tables.write(tmp_path, "softmax", (9, 0), {"forward": {(2, 1, 1): SMALL}})
    assert tables.choice(path, "forward", (2, 1, 1)) == SMALL
    tables.write(tmp_path, "softmax", (9, 0), {"forward": {(2, 1, 1): LARGE}})
    assert tables.choice(path, "forward", (2, 1, 1)) == LARGE


def test_a_failure_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tables.write(tmp_path, "softmax", (9, 0), {"forward": ENTRIES})
    before = path.read_text()

    def write_half() -> None:
        with tables.replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == before
    assert [file.name for file in tmp_path.glob("*helion_aot*")] == [path.name]


def test_a_table_without_points_is_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / tables.file_name("softmax", (9, 0))
    path.write_text("def autotune_forward(*args):\n    return {'block_sizes': [8]}\n")
    assert tables.choice(path, "forward", (2, 1, 1)) == {"block_sizes": [8]}
    with pytest.raises(ValueError, match=r"has no POINTS_forward.*give another folder"):
        tables.write(tmp_path, "softmax", (9, 0), {"backward": ENTRIES})


def test_an_answer_that_is_no_config_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "heuristic_forward.py"
    path.write_text("def autotune_forward(*args):\n    return 3\n")
    with pytest.raises(ValueError, match=r"autotune_forward\(2, 1, 1\) gave 3, expected a dict"):
        tables.choice(path, "forward", (2, 1, 1))


def test_capabilities_of_two_digits(tmp_path: Path) -> None:
    for capability in ((8, 9), (9, 0), (12, 0)):
        tables.write(tmp_path, "softmax", capability, {"forward": ENTRIES})
    tables.write(tmp_path, "softmax_other", (9, 0), {"forward": ENTRIES})
    assert sorted(tables.files(tmp_path, "softmax")) == [(8, 9), (9, 0), (12, 0)]


@pytest.mark.parametrize("table", ALL_TABLES, ids=repr)
def test_a_shipped_decision_agrees_with_its_points(table: ConfigTable) -> None:
    found = tables.files(table.folder, table.stem)
    assert (9, 0) in found, "no table for the H200"
    for path in found.values():
        entries = tables.entries(path, table.name)
        assert entries, f"{path} has no table {table.name}"
        for itemsize, width, length in itertools.product((1, 2, 4, 8), range(14), range(16)):
            point = itemsize, 1 << width >> 1, 1 << length >> 1
            expected = entries[min(entries, key=lambda known: distance(known, point))]
            assert tables.choice(path, table.name, point) == expected, (
                f"{path}, {table.name}: the decision at {point} is not that of the nearest point"
            )


@pytest.mark.parametrize(
    "table",
    [
        one
        for one in ALL_TABLES
        # Those of short rows are bound to the one width that their constants name.
        if one.stem == "hstu_attention" and "short" not in one.name
    ],
    ids=repr,
)
def test_attention_takes_no_config_of_narrower_heads(table: ConfigTable) -> None:
    """It might spill: D 256 once ran with blocks for 128 features, at half the speed."""
    for path in tables.files(table.folder, table.stem).values():
        entries = tables.entries(path, table.name)
        for itemsize, width, length in itertools.product((2, 4), range(1, 10), range(16)):
            point = itemsize, 1 << width >> 1, 1 << length >> 1
            config = tables.choice(path, table.name, point)
            widest = max(at[1] for at, one in entries.items() if one == config)
            assert widest >= point[1], f"{table} at {point} has a config for {widest}"


def test_every_shipped_table_is_used() -> None:
    used = {(table.folder, table.stem, table.name) for table in ALL_TABLES}
    for folder in {table.folder for table in ALL_TABLES}:
        for path in folder.glob("_helion_aot_*.py"):
            stem = path.name.removeprefix("_helion_aot_").rpartition("_cuda_")[0]
            for name in tables.names(path):
                assert (folder, stem, name) in used, f"{path}: nothing asks for {name}"
