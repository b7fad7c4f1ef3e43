"""Single configs as files, and the best of earlier searches under Helion's switches."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import helion
import helion.language as hl
import pytest
import torch
from helion import exc

from jagged.tuning import cache
from jagged.tuning.configs import Config
from jagged.tuning.launch import launchable
from tests.tuning.redis_server import RedisServer

H200 = "NVIDIA H200"
BACKEND = "jagged.tuning.remote.RedisBackend"
SMALL = Config({"block_sizes": [8], "num_warps": 1})
LARGE = Config({"block_sizes": [64]}, form="row", constants={"BLOCK": 16})


@launchable()
def _twice(values: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(values.size(0)):
        out[tile, :] = values[tile, :] * 2


def same(one: Config, other: Config) -> bool:
    return (one.settings, one.form, one.constants) == (other.settings, other.form, other.constants)


class Search:
    """Finds `winner`, and keeps what it was given to start from."""

    def __init__(self, winner: Config) -> None:
        self.winner = winner
        self.starts: list[list[Config]] = []

    def __call__(self, earlier: list[Config]) -> tuple[Config, float]:
        self.starts.append(earlier)
        return self.winner, 12.5


def best(point: cache.Point, search: Search, table: str = "sum.forward") -> Config:
    return cache.best(table, point, search, hardware=H200)


class TestFiles:
    @pytest.mark.parametrize("config", [SMALL, LARGE])
    def test_loads_what_was_saved(self, config: Config, tmp_path: Path) -> None:
        cache.save(config, tmp_path / "deep" / "config.json")
        assert same(cache.load(tmp_path / "deep" / "config.json"), config)
        assert [path.name for path in (tmp_path / "deep").iterdir()] == ["config.json"]

    def test_leaves_out_the_defaults(self, tmp_path: Path) -> None:
        args = torch.zeros(40, 32), torch.zeros(40, 32)
        default = _twice.bind(Config({"block_sizes": [8]}), args).config_spec.default_config()
        stages = default.config["num_stages"]
        settings = {"block_sizes": [8], "num_warps": 8, "num_stages": stages, "pid_type": "flat"}
        full = Config(settings, "row", {"DEEP": 4}, maxnreg=128)
        cache.save(full, tmp_path / "config.json", _twice, args)
        kept = {"block_sizes": [8], "num_warps": 8}
        record = json.loads((tmp_path / "config.json").read_text())
        assert record == {**kept, "form": "row", "constants": {"DEEP": 4}, "maxnreg": 128}

    def test_loads_what_helion_saved(self, tmp_path: Path) -> None:
        helion.Config(block_sizes=[4, 8], num_warps=2).save(tmp_path / "config.json")
        loaded = cache.load(tmp_path / "config.json")
        assert same(loaded, Config({"block_sizes": [4, 8], "num_warps": 2}))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", ": Expecting property name"),
            ("[1]", r" but \[1\]"),
            ('{"form": 3}', ": form must be text, constants numbers by name"),
            ('{"constants": [1]}', ": form must be text, constants numbers by name"),
        ],
    )
    def test_refuses_other_files(self, text: str, message: str, tmp_path: Path) -> None:
        path = tmp_path / "config.json"
        path.write_text(text)
        with pytest.raises(ValueError, match=f"config.json holds no config{message}"):
            cache.load(path)


class TestBest:
    def test_searches_once(self, folder: Path) -> None:
        search = Search(LARGE)
        assert same(best((2, 128, 64), search), LARGE)
        assert same(best((2, 128, 64), search), LARGE)
        assert search.starts == [[]]
        (path,) = (folder / "jagged").iterdir()
        entry = json.loads(path.read_text())
        assert entry["microseconds"] == 12.5
        assert entry["key"]["fields"]["hardware"] == H200

    def test_depends_on_table_point_hardware_and_source(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        best((2, 128, 64), Search(LARGE))
        others = [
            lambda search: best((2, 128, 128), search),
            lambda search: best((2, 128, 64), search, "sum.backward"),
            lambda search: cache.best("sum.forward", (2, 128, 64), search, hardware="other"),
        ]
        for other in others:
            search = Search(SMALL)
            assert same(other(search), SMALL)
        monkeypatch.setattr(cache, "_source_hash", lambda module: "changed")
        assert same(best((2, 128, 64), Search(SMALL)), SMALL)

    def test_starts_from_near_bests_of_the_same_kernel(self) -> None:
        best((2, 512, 64), Search(Config({"block_sizes": [512]})))
        best((2, 128, 32), Search(Config({"block_sizes": [128]})))
        best((2, 128, 32), Search(SMALL), "softmax.forward")
        cache.best("sum.forward", (2, 128, 16), Search(SMALL), hardware="other")
        search = Search(LARGE)
        best((2, 128, 64), search)
        assert [config.settings["block_sizes"] for config in search.starts[0]] == [[128], [512]]

    def test_starts_from_few_and_from_each_once(self) -> None:
        for width in range(1, 12):
            best((2, 1 << width, 8), Search(Config({"block_sizes": [width // 2]})))
        search = Search(LARGE)
        best((2, 1, 8), search)
        sizes = [config.settings["block_sizes"][0] for config in search.starts[0]]
        assert sizes == [0, 1, 2, 3, 4]

    def test_a_damaged_file_is_searched_again(self, folder: Path) -> None:
        best((1,), Search(LARGE))
        (path,) = (folder / "jagged").iterdir()
        path.write_text(path.read_text()[:40])
        assert same(best((1,), Search(SMALL)), SMALL)
        assert same(best((1,), Search(LARGE)), SMALL)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda text: b"\xff\x00" + text,
            lambda text: b"",
            lambda text: text[: len(text) // 2],
            lambda text: b"[]",
            lambda text: text.replace(b'"point": "[64]"', b'"point": "64"'),
            lambda text: text.replace(b'"point": "[64]"', b'"point": [64]'),
            lambda text: text.replace(b'"source"', b'"sources"'),
            lambda text: re.sub(rb'"fields": {[^}]*}', b'"fields": "none"', text),
            lambda text: re.sub(rb'"config": .*', rb'"config": "[8]",', text),
        ],
    )
    def test_damaged_entries_are_passed_over(
        self, damage: Callable[[bytes], bytes], folder: Path
    ) -> None:
        """Where it is the one that is asked for, and where it is a neighbour."""
        best((64,), Search(SMALL))
        (entry,) = (folder / "jagged").glob("*.json")
        whole = entry.read_bytes()
        entry.write_bytes(damage(whole))
        assert entry.read_bytes() != whole
        near = Search(LARGE)
        best((65,), near)
        assert near.starts == [[]]

    def test_an_entry_may_go_while_others_are_read(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        best((64,), Search(SMALL))
        (entry,) = (folder / "jagged").glob("*.json")
        listed = Path.glob

        def glob(self: Path, pattern: str) -> list[Path]:
            found = list(listed(self, pattern))
            entry.unlink(missing_ok=True)
            return found

        monkeypatch.setattr(Path, "glob", glob)
        search = Search(LARGE)
        best((65,), search)
        assert search.starts == [[]]

    def test_refuses_a_module_that_is_none(self) -> None:
        with pytest.raises(ValueError, match=r"jagged\.kernels has no module 'summ'"):
            best((1,), Search(SMALL), "summ.forward")

    def test_an_interrupted_search_leaves_nothing(self, folder: Path) -> None:
        def interrupted(earlier: list[Config]) -> tuple[Config, float]:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            cache.best("sum.forward", (1,), interrupted, hardware=H200)
        assert not list(folder.rglob("*.json*"))


class TestSwitches:
    def test_cache_dir(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HELION_CACHE_DIR", str(tmp_path / "elsewhere"))
        best((1,), Search(SMALL))
        assert len(list((tmp_path / "elsewhere" / "jagged").iterdir())) == 1

    def test_force_autotune(self, monkeypatch: pytest.MonkeyPatch) -> None:
        best((1,), Search(SMALL))
        monkeypatch.setenv("HELION_FORCE_AUTOTUNE", "1")
        assert same(best((1,), Search(LARGE)), LARGE)
        monkeypatch.delenv("HELION_FORCE_AUTOTUNE")
        assert same(best((1,), Search(SMALL)), LARGE)

    def test_skip_cache(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        best((1,), Search(SMALL))
        monkeypatch.setenv("HELION_SKIP_CACHE", "1")
        search = Search(LARGE)
        assert same(best((1,), search), LARGE)
        assert search.starts == [[]]
        monkeypatch.delenv("HELION_SKIP_CACHE")
        assert same(best((1,), Search(LARGE)), SMALL)

    def test_assert_cache_hit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        best((1,), Search(SMALL))
        monkeypatch.setenv("HELION_ASSERT_CACHE_HIT", "1")
        assert same(best((1,), Search(LARGE)), SMALL)
        with pytest.raises(exc.CacheAssertionError, match=r"kernel 'sum\.forward at \(2,\)'"):
            best((2,), Search(LARGE))

    def test_disallow_autotuning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        best((1,), Search(SMALL))
        monkeypatch.setenv("HELION_DISALLOW_AUTOTUNING", "1")
        assert same(best((1,), Search(LARGE)), SMALL)
        with pytest.raises(
            exc.AutotuningDisallowedInEnvironment, match="HELION_DISALLOW_AUTOTUNING=1"
        ):
            best((2,), Search(LARGE))

    def test_strict_caches_depend_on_versions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "StrictLocalAutotuneCache")
        best((1,), Search(SMALL))
        assert same(best((1,), Search(LARGE)), SMALL)
        monkeypatch.setattr(cache.triton, "__version__", "0.0")
        search = Search(LARGE)
        assert same(best((1,), search), LARGE)
        assert same(search.starts[0][0], SMALL)

    def test_remote_cache_shares_and_the_disk_wins(
        self, server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "RemoteAutotuneCache")
        monkeypatch.setenv("HELION_REMOTE_CACHE_BACKEND", BACKEND)
        monkeypatch.setenv("REDIS_URL", server.url)
        assert same(best((1,), Search(SMALL)), SMALL)
        monkeypatch.setenv("HELION_CACHE_DIR", str(tmp_path / "colleague"))
        assert same(best((1,), Search(LARGE)), SMALL)  # from the server, and now on disk
        search = Search(LARGE)
        best((2,), search)
        assert same(search.starts[0][0], SMALL)
        monkeypatch.setenv("HELION_FORCE_AUTOTUNE", "1")
        best((1,), Search(LARGE))
        monkeypatch.delenv("HELION_FORCE_AUTOTUNE")
        monkeypatch.setenv("HELION_CACHE_DIR", str(tmp_path))
        assert same(best((1,), Search(LARGE)), SMALL)  # the server has LARGE, the disk SMALL

    def test_an_outage_degrades_to_the_disk(
        self, server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "StrictRemoteAutotuneCache")
        monkeypatch.setenv("HELION_REMOTE_CACHE_BACKEND", BACKEND)
        monkeypatch.setenv("REDIS_URL", server.url)
        server.stop()

        def three_searches() -> list[Config]:
            return [best((1,), Search(SMALL)), best((1,), Search(LARGE)), best((2,), Search(LARGE))]

        with pytest.warns(RuntimeWarning, match="local disk alone") as caught:
            found = three_searches()
        assert len(caught) == 1
        assert [same(config, SMALL) for config in found] == [True, True, False]

    def test_a_remote_cache_needs_a_backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "RemoteAutotuneCache")
        with pytest.raises(ValueError, match="HELION_REMOTE_CACHE_BACKEND must be set"):
            best((1,), Search(SMALL))

    def test_an_unknown_cache_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "Redis")
        with pytest.raises(ValueError, match=r"one of LocalAutotuneCache, .*got 'Redis'"):
            best((1,), Search(SMALL))
