"""Configs as files: one saved by hand, and the best that earlier searches found.

`save` and `load` keep a single config as JSON. `best` stands around a search: it answers from what
an earlier one found on the same kind of GPU for the same kernel source, and hands a new search the
bests of its neighbours to start from. Both follow Helion's switches:

- HELION_CACHE_DIR: root of all caches; bests are in its folder `jagged`.
- HELION_AUTOTUNE_CACHE: LocalAutotuneCache (default), the disk alone. StrictLocalAutotuneCache: a
  best holds for the versions of Helion, PyTorch and Triton that found it. RemoteAutotuneCache and
  StrictRemoteAutotuneCache: what the disk lacks is asked of HELION_REMOTE_CACHE_BACKEND, such as
  `jagged.tuning.remote.RedisBackend`, and a new best is written to both. AOTAutotuneCache is for
  kernels of `helion.aot_kernel`; here it is the disk alone.
- HELION_FORCE_AUTOTUNE=1: search again, and remember the new best.
- HELION_SKIP_CACHE=1: neither read nor write.
- HELION_ASSERT_CACHE_HIT=1: an error where there is no best; for CI and production.
- HELION_DISALLOW_AUTOTUNING=1: an error instead of a search.
"""

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import helion
import torch
import triton
from helion import exc
from helion.autotuner import RemoteCacheBackend, cache_classes
from helion.autotuner.base_cache import should_skip_cache
from helion.autotuner.local_cache import get_helion_cache_dir
from helion.autotuner.remote_cache import _load_remote_backend

from jagged import kernels
from jagged.tuning import tables
from jagged.tuning.configs import Config
from jagged.tuning.launch import Launchable

Point = tuple[int | str, ...]
# Gets configs to start from, gives the winner and its time in microseconds.
Search = Callable[[list[Config]], tuple[Config, float]]

WARM_START = 5  # earlier bests that a search starts from
MOST_REMOTE = 1000  # of the newest entries of a remote cache are looked through for them


def save(
    config: Config, path: str | Path, kernel: Launchable | None = None, args: Sequence[Any] = ()
) -> None:
    """Write `config` to `path` as JSON, atomically.

    Args:
        config: the config; `load` gives an equal one.
        path: the file; its folder is made where it is missing.
        kernel: with it, settings that equal Helion's defaults for this kernel are left out, so that
            the file holds decisions alone and outlives a new setting in Helion.
        args: arguments that `kernel` would be launched with (their shapes and dtypes count).
    """
    if kernel is not None:
        spec = kernel.bind(config, args).config_spec
        settings = helion.Config(**config.settings).minimize(spec).config
        config = Config(settings, config.form, config.constants, config.maxnreg)
    _write(Path(path), json.dumps(config.as_dict(), indent=2))


def load(path: str | Path) -> Config:
    """The config in `path`: one that `save` wrote, or one of `helion.Config.save`.

    Raises:
        ValueError: the file holds no config.
    """
    try:
        config = json.loads(Path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{path} holds no config: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no config but {config!r}")
    constants = config.get("constants", {})
    if not isinstance(config.get("form", ""), str) or not isinstance(constants, dict):
        raise ValueError(f"{path} holds no config: form must be text, constants numbers by name")
    return Config.from_dict(config)


def best(table: str, point: Point, search: Search, hardware: str | None = None) -> Config:
    """The best config for `point`: remembered, else found by `search` and remembered.

    Args:
        table: module of jagged.kernels and name of its table, such as "softmax.forward".
        point: what the config is best for, such as (itemsize, width, mean length).
        search: called with up to five earlier bests of the same table and hardware, those of
            near points first; gives the winner and its time in microseconds.
        hardware: the GPU's name; None for the current one.

    Raises:
        helion.exc.CacheAssertionError: none is remembered and HELION_ASSERT_CACHE_HIT=1.
        helion.exc.AutotuningDisallowedInEnvironment: as above, HELION_DISALLOW_AUTOTUNING=1.
    """
    settings = helion.Settings()
    remote = _remote(settings.autotune_cache)
    strict = settings.autotune_cache.startswith("Strict")
    fields = _fields(table, point, hardware or torch.cuda.get_device_name(), strict)
    key = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    path = folder() / f"{key}.json"
    skip = should_skip_cache()
    if not skip and not settings.force_autotune:
        known = _remembered(path, key, remote)
        if known is not None:
            return known
        if os.environ.get("HELION_ASSERT_CACHE_HIT") == "1":
            raise exc.CacheAssertionError(f"{table} at {point}")
    settings.check_autotuning_disabled()
    earlier = [] if skip else from_cache(table, point, fields["hardware"], remote=remote)
    config, microseconds = search(earlier)
    if not skip:
        text = _entry(config, fields, microseconds)
        _write(path, text)
        if remote is not None:
            remote.put(key, text)
    return config


def from_cache(
    table: str,
    point: Point,
    hardware: str,
    limit: int = WARM_START,
    remote: RemoteCacheBackend | None = None,
) -> list[Config]:
    """Earlier bests of `table` on `hardware` for the kernel's present source, near points first."""
    wanted = _fields(table, point, hardware, strict=False)
    found: dict[str, tuple[float, Config]] = {}
    for fields, config in _entries(remote):
        if all(fields.get(name) == wanted[name] for name in ("table", "hardware", "source")):
            distance = _distance(json.loads(fields["point"]), point)
            text = json.dumps(config.as_dict(), sort_keys=True)
            if text not in found or distance < found[text][0]:
                found[text] = distance, config
    return [config for _, config in sorted(found.values(), key=lambda pair: pair[0])[:limit]]


def require_writable() -> None:
    """Refuse what `best` would refuse after a search.

    Raises:
        OSError: nothing can be remembered on the disk.
        ValueError: a switch has no meaning.
        ImportError: the remote cache has no such module.
    """
    if not should_skip_cache():
        tables.require_writable(folder() / "best.json")
    _remote(helion.Settings().autotune_cache)


def folder() -> Path:
    """Where bests are remembered: `jagged` in HELION_CACHE_DIR, else in Helion's default."""
    return Path(get_helion_cache_dir()) / "jagged"


def _remote(cache_class: str) -> RemoteCacheBackend | None:
    """The remote cache that the environment names, if its class of caches asks for one."""
    if cache_class not in cache_classes:
        known = ", ".join(cache_classes)
        raise ValueError(f"HELION_AUTOTUNE_CACHE must be one of {known}, got {cache_class!r}")
    try:
        return _load_remote_backend() if "Remote" in cache_class else None
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"HELION_REMOTE_CACHE_BACKEND names no class of caches: {error}"
        ) from error


def _fields(table: str, point: Point, hardware: str, strict: bool) -> dict[str, str]:
    """All that a best depends on."""
    fields = {
        "table": table,
        "hardware": hardware,
        "point": json.dumps(point),
        "source": _source_hash(table.rsplit(".", 1)[0]),
    }
    if strict:
        versions = metadata.version("helion"), torch.__version__, triton.__version__
        fields["versions"] = " ".join(versions)
    return fields


@cache
def _source_hash(module: str) -> str:
    """A config's lists are positional: one for other source may mean something else."""
    spec = importlib.util.find_spec(f"jagged.kernels.{module}")
    if spec is None or spec.origin is None:
        raise ValueError(f"jagged.kernels has no module {module!r}")
    origin = Path(spec.origin)
    is_package = origin.name == "__init__.py"
    own = origin.parent.glob("*.py") if is_package else [origin]
    shared = Path(kernels.__path__[0]).glob("_*.py")
    return digest({*own, *shared})


def digest(files: Iterable[Path]) -> str:
    """One hash of kernels' source files, in the order of their paths; tables do not count."""
    sources = sorted(path for path in files if not path.name.startswith("_helion_aot_"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()


def _remembered(path: Path, key: str, remote: RemoteCacheBackend | None) -> Config | None:
    """The config on disk, else the remote one, which is then written to disk."""
    parsed = _parse(_text(path))
    if parsed is not None:
        return parsed[1]
    data = None if remote is None else remote.get(key)
    parsed = None if data is None else _parse(data)
    if data is None or parsed is None:
        return None
    _write(path, data)
    return parsed[1]


def _entries(remote: RemoteCacheBackend | None) -> Iterator[tuple[dict[str, str], Config]]:
    """Every readable entry: those on disk, then the remote ones."""
    texts = [_text(path) for path in sorted(folder().glob("*.json"))]
    if remote is not None:
        texts.extend(remote.list(max_results=MOST_REMOTE))
    for text in texts:
        parsed = _parse(text)
        if parsed is not None:
            yield parsed


def _text(path: Path) -> str:
    """What is in an entry's file; nothing of one that is not there, or is not any more."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _entry(config: Config, fields: dict[str, str], microseconds: float) -> str:
    """In the shape of Helion's own entries, so that one remote cache may hold both."""
    entry = {
        "config": json.dumps(config.as_dict()),
        "key": {"type": "jagged", "fields": fields},
        "microseconds": microseconds,
    }
    return json.dumps(entry, indent=2)


def _parse(text: str) -> tuple[dict[str, str], Config] | None:
    """Fields and config of an entry; None for Helion's own, and for a damaged one."""
    try:
        entry = json.loads(text)
        fields = entry["key"]["fields"]
        if entry["key"]["type"] != "jagged" or not isinstance(json.loads(fields["point"]), list):
            return None
        return fields, Config.from_dict(json.loads(entry["config"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _distance(known: Sequence[int | str], point: Point) -> float:
    """Steps of two between two points; infinite where a name differs."""
    if len(known) != len(point):
        return float("inf")
    distance = 0
    for one, other in zip(known, point, strict=True):
        if isinstance(one, int) and isinstance(other, int):
            distance += abs(one.bit_length() - other.bit_length())
        elif one != other:
            return float("inf")
    return float(distance)


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tables.replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
