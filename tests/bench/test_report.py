"""Reading, comparing and drawing results, on rows made up here."""

import dataclasses
from pathlib import Path

import pytest

from bench import charts, report
from bench.cases import CASES
from bench.rows import COLUMNS, Machine, Row, file_name, git_commit, read, write

OLD = Machine("aaaa1111", "2026-01-01T00:00:00Z", "NVIDIA H200", "2.11", "3.6", "1.5", "1.6")
NEW = dataclasses.replace(OLD, commit="bbbb2222", date="2026-01-02T00:00:00Z")


def row(
    machine: Machine = NEW, provider: str = "jagged", ms: float | None = 0.1, **more: object
) -> Row:
    fields = {"op": "softmax", "mode": "forward", "shape": "uniform", "dtype": "bfloat16", **more}
    share = None if ms is None else round(0.08 / ms, 4)
    return Row(machine, provider=provider, p50_ms=ms, limit_share=share, **fields)  # type: ignore[arg-type]


def test_rows_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / file_name(OLD)
    assert path.name == "nvidia-h200.csv"
    first = [row(OLD), row(OLD, "fbgemm", 3.956, tflop_s=1.5, error="1.0e-03")]
    second = [row(NEW, "torch-njt", None, error='wrong: a "quoted", text')]
    write(path, first)
    write(path, second)
    assert path.read_text().count("commit") == 1
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    found = read([path])
    assert [r.provider for r in found] == ["jagged", "fbgemm", "torch-njt"]
    assert found[1] == first[1]
    assert found[2] == second[0]


def test_the_columns_are_the_agreed_ones() -> None:
    assert ",".join(COLUMNS) == (
        "commit,date,gpu,torch,triton,helion,fbgemm,op,mode,shape,dtype,provider,"
        "p50_ms,p20_ms,p80_ms,gb_s,tflop_s,limit_share,peak_mib,host_us,error"
    )


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="must have the columns"):
        read([path])


def test_the_table_holds_ours_the_fastest_baseline_and_who_failed() -> None:
    text = report.table(
        [
            row(op="limits", mode="copy", provider="torch", ms=1.0, gb_s=4250.0),
            row(ms=0.2),
            row(provider="jagged-eager", ms=0.05),  # ours: no baseline
            row(provider="fbgemm", ms=4.0),
            row(provider="torch-compile", ms=0.5),
            row(provider="torch-njt", ms=None, error="wrong: everything"),
            row(mode="call", ms=None, host_us=31.5),
            row(mode="call-new", ms=None, host_us=32.25),
        ]
    )
    assert "copy 4,250 GB/s" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| softmax | forward"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[4:9] == ["0.2", "torch-compile", "0.5", "2.50x", "40 %"]
    assert cells[10:] == ["4", "0.05"]
    assert "- softmax forward uniform bfloat16 **torch-njt**: wrong: everything" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| softmax | jagged"))
    assert [cell.strip() for cell in line.strip("|").split("|")][2:4] == ["31.5", "32.2"]


def test_forward_and_backward_are_also_added_up() -> None:
    rows = [
        row(ms=0.2),
        row(mode="backward", ms=0.4),
        row(provider="fbgemm", ms=4.0),
        row(provider="fbgemm", mode="backward", ms=None, error="no"),
    ]
    (sum_,) = report.both(rows)
    assert (sum_.provider, sum_.mode) == ("jagged", "both")
    assert sum_.p50_ms == pytest.approx(0.6)
    # 0.08 ms is the floor of either.
    assert sum_.limit_share == pytest.approx(0.16 / 0.6)


def test_the_last_run_of_a_commit_counts() -> None:
    rows = [row(OLD, ms=9.0), row(NEW, ms=5.0), row(NEW, ms=0.4)]
    assert [r.p50_ms for r in report.of_commit(rows, None)] == [0.4]
    assert [r.p50_ms for r in report.of_commit(rows, "aaaa")] == [9.0]
    with pytest.raises(ValueError, match="no rows of commit 'cccc'"):
        report.of_commit(rows, "cccc")


@pytest.mark.parametrize(("ms", "code"), [(0.109, 0), (0.111, 1), (0.05, 0), (None, 1)])
def test_compare_exits_with_1_where_an_op_got_slower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ms: float | None, code: int
) -> None:
    path = tmp_path / "gpu.csv"
    # A slower baseline is no fault of ours, and a case measured once alone is no comparison.
    write(path, [row(OLD, ms=0.1), row(OLD, "fbgemm", 1.0), row(OLD, op="sum", ms=1.0)])
    write(path, [row(NEW, ms=ms, error="" if ms else "gone"), row(NEW, "fbgemm", 2.0)])
    assert report.main([str(path), "--compare", "aaaa", "bbbb"]) == code
    text = capsys.readouterr().out
    assert ("SLOWER" in text) == (ms == 0.111)
    assert ("FAILED" in text) == (ms is None)
    assert "sum" not in text


def test_charts_are_one_a_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gpu.csv"
    write(
        path,
        [
            row(ms=0.2),
            row(provider="fbgemm", ms=4.0),
            row(mode="backward", ms=0.3),
            row(op="hstu_attention", shape="full-n128-h4-d128", ms=1.0, tflop_s=300.0),
            row(op="hstu_attention", shape="feature-window", ms=1.0, tflop_s=200.0),
            row(op="hstu_attention", shape="feature-targets", ms=1.0, tflop_s=100.0),
            row(op="hstu_attention", provider="torch-varlen (softmax)", shape="x", ms=2.0),
            row(op="sum", provider="torch-njt", ms=None, error="failed"),
        ],
    )
    assert report.main([str(path), "--charts", str(tmp_path / "charts")]) == 0
    names = sorted(chart.name for chart in (tmp_path / "charts").iterdir())
    assert names == [
        "gpu-hstu-attention-features.png",
        "gpu-hstu-attention-lengths.png",
        "gpu-softmax-and-norms.png",
    ]
    for name in names:
        assert (tmp_path / "charts" / name).read_bytes().startswith(b"\x89PNG")
        assert name in capsys.readouterr().out or name != names[0]


def test_every_shape_of_attention_is_charted() -> None:
    shapes = [shape.name for shape in CASES["hstu_attention"].shapes]
    families = [family for family in charts.FAMILIES.values() if family.each]
    for shape in shapes:
        rows = [row(op="hstu_attention", shape=shape, ms=1.0)]
        found = [cases for f in families if (cases := charts._cases(rows, f, "forward"))]
        assert [list(cases.values()) for cases in found] == [[rows]], shape


def test_a_chart_of_ops_shows_their_first_standard_shape() -> None:
    rows = [
        row(shape="mean4-d32"),
        row(),
        row(dtype="float32"),
        row(op="sum"),
        row(op="layer_norm"),
    ]
    cases = charts._cases(rows, charts.FAMILIES["softmax-and-norms"], "forward")
    assert list(cases) == ["softmax\nuniform, bfloat16", "layer_norm\nuniform, bfloat16"]
    assert list(cases.values()) == [[rows[1]], [rows[4]]]


def test_nothing_to_report() -> None:
    assert report.table([]) == "no rows"
    with pytest.raises(SystemExit):
        report.main(["--compare", "one"])


def test_the_commit_comes_from_git_or_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_commit()
    monkeypatch.setenv("PATH", "")
    assert git_commit() == "unknown"


def test_what_cannot_be_shown_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = Path(report.__file__).parent / "results" / "nvidia-h200.csv"
    for arguments, message in (
        ([str(tmp_path / "none.csv")], "No such file or directory"),
        ([str(known), "--commit", "xyz"], "no rows of commit 'xyz': the file has "),
        ([str(known), "--compare", "xyz", "abc"], "no rows of commit 'xyz': the file has "),
    ):
        with pytest.raises(SystemExit, match="2"):
            report.main(arguments)
        printed = capsys.readouterr()
        assert printed.err.startswith("python -m bench.report: ")
        assert message in printed.err
        assert not printed.out
