"""Helion's own switches, on a kernel of a user's, up to the point where a GPU would be timed.

The search is replaced by one that names its winner at once; what stands around it is Helion's.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import pytest
import torch
from helion import exc
from helion.autotuner import cache_classes, search_algorithms
from helion.autotuner.base_search import BaseSearch
from helion.autotuner.effort_profile import get_effort_profile

from jagged.tuning.offline import H200, FakeDevice, pretend
from tests.tuning.redis_server import RedisServer

BACKEND = "jagged.tuning.remote.RedisBackend"
WINNER = helion.Config(block_sizes=[64], num_warps=2)
RIVAL = helion.Config(block_sizes=[128], num_warps=8)


def twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


class Named(BaseSearch):  # type: ignore[misc]
    """A search that finds `winner`."""

    winner = WINNER
    searches = 0

    def __init__(self, kernel: Any, args: Sequence[Any], **options: Any) -> None:
        super().__init__(kernel, args)

    def autotune(self, *, skip_cache: bool = False) -> helion.Config:
        Named.searches += 1
        return Named.winner


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HELION_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HELION_AUTOTUNER", "Named")
    monkeypatch.setitem(search_algorithms, "Named", Named)
    monkeypatch.setattr(Named, "winner", WINNER)
    monkeypatch.setattr(Named, "searches", 0)
    with pretend(H200):
        yield tmp_path


def tuned(rows: int = 1000, **options: Any) -> helion.Config:
    """What a fresh process would run `twice` with. Helion reads its switches at the decorator."""
    device = FakeDevice()
    kernel = helion.kernel(twice, **options)
    args = (device.tensor(torch.empty(rows, device="meta"), ()),)
    bound = kernel.bind(args)
    bound.ensure_config_exists(args)
    return bound._config


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.best_config"))


def test_cache_dir_and_the_local_cache(folder: Path) -> None:
    assert tuned()["block_sizes"] == [64]
    assert tuned()["block_sizes"] == [64]
    assert Named.searches == 1
    (path,) = entries(folder)
    assert json.loads(path.read_text())["key"]["fields"]["hardware"] == "NVIDIA H200"


def test_another_shape_is_tuned_anew(folder: Path) -> None:
    tuned(1000)
    tuned(2000)
    assert (Named.searches, len(entries(folder))) == (2, 2)


def test_force_autotune_searches_and_writes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned()
    monkeypatch.setenv("HELION_FORCE_AUTOTUNE", "1")
    Named.winner = RIVAL
    assert tuned()["num_warps"] == 8
    monkeypatch.delenv("HELION_FORCE_AUTOTUNE")
    Named.winner = WINNER
    assert tuned()["num_warps"] == 8
    assert Named.searches == 2


def test_skip_cache_neither_reads_nor_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELION_SKIP_CACHE", "1")
    tuned()
    tuned()
    assert (Named.searches, entries(folder)) == (2, [])


def test_assert_cache_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELION_ASSERT_CACHE_HIT", "1")
    with pytest.raises(exc.CacheAssertionError, match="Expected cache hit for kernel 'twice'"):
        tuned()
    monkeypatch.delenv("HELION_ASSERT_CACHE_HIT")
    tuned()
    monkeypatch.setenv("HELION_ASSERT_CACHE_HIT", "1")
    assert tuned()["block_sizes"] == [64]


def test_disallow_autotuning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELION_DISALLOW_AUTOTUNING", "1")
    with pytest.raises(exc.AutotuningDisallowedInEnvironment, match="HELION_DISALLOW_AUTOTUNING"):
        tuned()
    assert tuned(config=RIVAL)["block_sizes"] == [128]


def test_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_EFFORT", "none")
    assert tuned()["block_sizes"] not in ([64], [128])
    assert Named.searches == 0
    monkeypatch.setenv("HELION_AUTOTUNE_EFFORT", "quick")
    assert helion.Settings().autotune_effort == "quick"
    quick, full = (get_effort_profile(effort).lfbo_pattern_search for effort in ("quick", "full"))
    assert quick.max_generations < full.max_generations
    monkeypatch.setenv("HELION_AUTOTUNE_EFFORT", "most")
    with pytest.raises(ValueError, match="HELION_AUTOTUNE_EFFORT must be one of"):
        helion.Settings()


def test_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    assert helion.Settings().autotune_budget_seconds is None
    monkeypatch.setenv("HELION_AUTOTUNE_BUDGET_SECONDS", "90")
    assert helion.Settings().autotune_budget_seconds == 90


@pytest.mark.parametrize("strict", ["", "Strict"])
def test_a_strict_cache_depends_on_the_versions(
    strict: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_CACHE", f"{strict}LocalAutotuneCache")
    tuned()
    tuned()
    (path,) = entries(folder)
    fields = json.loads(path.read_text())["key"]["fields"]
    assert ("helion_key" in fields, "triton_key" in fields) == (bool(strict), bool(strict))
    assert Named.searches == 1


@pytest.fixture
def share(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    monkeypatch.setenv("HELION_REMOTE_CACHE_BACKEND", BACKEND)
    monkeypatch.setenv("REDIS_URL", server.url)
    yield server
    server.stop()


@pytest.mark.parametrize("strict", ["", "Strict"])
def test_the_remote_cache_shares_what_one_tuned(
    strict: str, share: RedisServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_CACHE", f"{strict}RemoteAutotuneCache")
    tuned()
    monkeypatch.setenv("HELION_CACHE_DIR", str(folder / "colleague"))
    Named.winner = RIVAL
    assert tuned()["num_warps"] == 2
    assert Named.searches == 1
    assert len(entries(folder / "colleague")) == 1
    monkeypatch.setenv("HELION_FORCE_AUTOTUNE", "1")
    tuned()
    monkeypatch.delenv("HELION_FORCE_AUTOTUNE")
    monkeypatch.setenv("HELION_CACHE_DIR", str(folder))
    assert tuned()["num_warps"] == 2  # the server has 8 now, the disk stays the truth


def test_an_outage_of_the_remote_cache_warns_once(
    share: RedisServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "RemoteAutotuneCache")
    share.stop()

    def three_times() -> list[helion.Config]:
        return [tuned(), tuned(), tuned(2000)]

    with pytest.warns(RuntimeWarning, match="local disk alone") as caught:
        found = three_times()
    assert [config["block_sizes"] for config in found] == [[64]] * 3
    assert len([one for one in caught if "config cache" in str(one.message)]) == 1
    assert (Named.searches, len(entries(folder))) == (2, 2)


def test_from_cache_starts_with_what_others_found(
    share: RedisServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "RemoteAutotuneCache")
    tuned()
    monkeypatch.setenv("HELION_CACHE_DIR", str(folder / "colleague"))
    kernel = helion.kernel(twice, autotuner_fn=helion.from_cache(max_configs=3, configs=[RIVAL]))
    args = (FakeDevice().tensor(torch.empty(1000, device="meta"), ()),)
    bound = kernel.bind(args)
    search = bound.settings.autotuner_fn(bound, args)
    assert [config["block_sizes"] for config in search.configs] == [[64], [128]]


def test_aot_cache_answers_from_a_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "AOTAutotuneCache")
    monkeypatch.setenv("HELION_AOT_DATA_DIR", str(folder / "aot"))
    monkeypatch.setenv("HELION_HEURISTIC_DIR", str(folder))
    table = f"""
def key_twice(*args):
    return 0


def autotune_twice(*args):
    return {dict(RIVAL.config)}
"""
    (folder / "_helion_aot_test_switches_cuda_sm90.py").write_text(table)
    assert tuned()["block_sizes"] == [128]
    assert Named.searches == 0


def test_an_unknown_cache_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_CACHE", "Redis")
    with pytest.raises(ValueError, match="Unknown HELION_AUTOTUNE_CACHE value: Redis"):
        tuned()
    assert "RemoteAutotuneCache" in cache_classes
