from pathlib import Path

import pytest

from examples.recommender.presets import PRESETS
from examples.recommender.settings import Settings, parse


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_sets_what_it_names_and_nothing_else(name: str) -> None:
    settings, _, _ = parse(["--preset", name])
    assert settings == Settings(**PRESETS[name])
    assert settings != Settings()


def test_an_option_beside_a_preset_wins() -> None:
    settings, _, _ = parse(["--width", "32", "--preset", "beauty", "--no-repeat-bias"])
    assert settings.width == 32
    assert not settings.repeat_bias
    assert settings.loss == "full"


def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--preset", "books"], "invalid choice: 'books'"),
        (["--preset", "beauty", "--resume", str(tmp_path)], "so drop --preset"),
        (["--preset", "beauty", "--loss", "uniform"], "repeat_bias is learned by the full loss"),
    ):
        with pytest.raises(SystemExit):
            parse(arguments)
        assert message in capsys.readouterr().err
