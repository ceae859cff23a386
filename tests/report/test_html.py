"""The page: what it tells, what it carries, and that nothing in it is more than text."""

import csv
import io
import math
import re
import shutil

import numpy as np
import pages
import pytest

from rnnjax import report
from rnnjax.report import __main__ as command
from rnnjax.report.html import BYTES

EVIL = "</script><img src=x onerror=alert(1)>"
EVIL_FOLDER = "<img src=x onerror=alert(1)>"


@pytest.fixture
def page(tmp_path):
    """(folders) -> (summary, the page)."""

    def made(*folders):
        summary = report.write_html(folders or [tmp_path / "runs"], tmp_path / "out" / "report.html")
        return summary, pages.Page(summary.path)

    return made


def test_claims_come_with_verdicts_measured_expected_and_seconds(page, tmp_path):
    pages.comparison(tmp_path / "runs" / "music")
    summary, found = page()
    assert summary.counts == {"held": 1, "not held": 1, "contested": 1, "not measured": 1}
    rows = [
        attributes["data-verdict"] for tag, attributes in found.tags if tag == "tr" and "data-verdict" in attributes
    ]
    assert rows == ["held", "not held", "contested", "not measured"]
    for text in ("contested, not held here", "Greff 2017", "no torch", "slope < 0", "-0.400", "12.3 s", "The title"):
        assert text in found.text
    assert [(study.label, len(study.claims)) for study in summary.studies] == [("music", 4)]


def test_the_table_of_runs_has_scores_and_what_differs(page, tmp_path):
    for rate in (0.01, 0.1):
        config = {"train": {"learning_rate": rate, "steps": 20}}
        pages.comparison(tmp_path / "runs" / f"rate={rate}", models=("lstm",), config=config)
    summary, found = page()
    assert "train.learning_rate=0.1" in found.text and "train.steps" not in found.text
    assert "0.850 ± 0.071" in found.text
    rows = list(csv.DictReader(io.StringIO(summary.csv.read_text())))
    assert [row["study"] for row in rows] == ["rate=0.01", "rate=0.1"]
    assert float(rows[0]["accuracy"]) == pytest.approx(0.85)
    assert float(rows[0]["accuracy sd"]) == pytest.approx(np.std([0.8, 0.9], ddof=1))
    loss = float(rows[0]["loss in training"])  # the median of both seeds
    assert loss == pytest.approx(2 / 21 + 0.05)
    assert rows[0]["overrides"] == "train.learning_rate=0.01"
    assert (rows[0]["seeds"], rows[0]["parameters"], rows[0]["steps"], rows[0]["seconds"]) == ("2", "100", "20", "1.5")


def test_norms_are_packed_to_a_hundredth_and_decode_to_what_was_measured(page, study):
    made = study(length=40)
    _, found = page(made.folder)
    line = next(line for line in found.data["norms"] if line["model"] == "jordan")
    assert line["steps"] == [0, 10, 100] and line["distance"] == list(range(40))
    wanted = np.moveaxis(made.arrays["jordan.carry"].astype(float), -1, 0)
    for quartile, rows in zip(wanted, line["quartiles"], strict=True):
        for values, coded in zip(quartile, rows, strict=True):
            total = 0
            for value, code in zip(values, coded, strict=True):
                if np.isneginf(value):
                    assert code == "0"
                else:
                    total += code
                    assert total / 100 == pytest.approx(value, abs=0.0051)


def test_cells_have_the_colours_of_the_static_figures(page, tmp_path):
    folder = pages.comparison(tmp_path / "runs" / "music", models=("lstm", "lstm-wide", "narrow"))
    pages.write(folder / "narrow" / "summary.json", {"name": "narrow", "cell": "lstm"})
    _, found = page()
    cells = found.data["cells"]
    assert list(cells) == ["lstm", "lstm-wide", "lstm narrow"]
    assert {cell["color"] for cell in cells.values()} == {report.style.COLORS["lstm"]}
    assert len({cell["dash"] for cell in cells.values()}) == 3


def test_nothing_is_fetched_and_only_the_pages_own_scripts_run(page, tmp_path):
    pages.comparison(tmp_path / "runs" / "music")
    _, found = page()
    policy = next(attributes["content"] for tag, attributes in found.tags if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]
    assert not any(tag == "link" or (tag in ("script", "iframe") and "src" in of) for tag, of in found.tags)
    assert all(of["src"].startswith("data:image/webp;base64,") for tag, of in found.tags if tag == "img")
    assert sum(tag == "img" for tag, _ in found.tags) == 1 and "A caption" in found.text


def test_what_files_say_is_only_text(page, tmp_path):
    folder = tmp_path / "runs" / EVIL_FOLDER
    claim = pages.CLAIM | dict.fromkeys(("claim", "source", "expected", "measured", "contested"), EVIL)
    pages.comparison(folder, EVIL, ("lstm", f"lstm-{EVIL_FOLDER}"), [claim], {"a": EVIL})
    pages.comparison(tmp_path / "runs" / "other", EVIL, config={"a": "b"})
    (folder / "report.md").write_text(f"# {EVIL}\n\n{EVIL} [x](javascript:alert(1)) ![{EVIL}](scores.png)\n\n{EVIL}\n")
    (folder / "lstm" / "summary.json").write_text(EVIL)
    summary, found = page()
    assert all(attributes.get("src", "data:").startswith("data:") for _, attributes in found.tags)
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert not any("javascript:" in str(value) for _, attributes in found.tags for value in attributes.values())
    scripts = [attributes.get("id") for tag, attributes in found.tags if tag == "script"]
    assert scripts == ["data", "plotly", None, None, None, None]
    assert EVIL in found.text and len(summary.problems) == 1


def hundred(made, folder, count, pixels):
    """Copies of a workdir, with norms and pictures that pack as badly as any."""
    noise = np.random.default_rng(0)
    for file in ("curves", "losses"):
        pages.Image.fromarray(noise.integers(0, 255, (*pixels, 3), dtype=np.uint8)).save(made.folder / f"{file}.png")
    for number in range(count):
        copy = shutil.copytree(made.folder, folder / f"seed={number}")
        for cell in report.style.COLORS:
            norms = made.arrays[f"{cell}.carry"]
            rough = norms + noise.normal(0, 0.1, norms.shape)
            np.savez(copy / cell / "norms.npz", step=made.arrays[f"{cell}.step"], carry=rough)


@pytest.mark.full
def test_a_hundred_runs_stay_below_8_megabytes(page, study, tmp_path):
    made = study(length=120, steps=(0, *range(100, 1300, 100)))
    hundred(made, tmp_path / "runs", 100, (120, 300))
    summary, found = page(tmp_path / "runs")
    assert summary.bytes == summary.path.stat().st_size < BYTES < 8_000_000
    assert len(found.data["norms"]) == 400 and len(found.data["runs"]) == 100
    assert "pictures are too many to show as they are" in found.text


def test_what_finds_no_place_is_thinned_made_smaller_or_left_out(monkeypatch, page, study, tmp_path):
    def sizes(found):
        return [len(attributes["src"]) for tag, attributes in found.tags if tag == "img"]

    monkeypatch.setattr("rnnjax.report.html._FOR_CURVES", 20_000)
    monkeypatch.setattr("rnnjax.report.pictures.SMALL", 60)
    hundred(study(length=120), tmp_path / "runs", 4, (80, 120))
    summary, found = page(tmp_path / "runs")
    assert len(summary.thinned) == 1 and len(sizes(found)) == 8
    monkeypatch.setattr("rnnjax.report.html.BYTES", summary.bytes - 50_000)
    summary, found = page(tmp_path / "runs")
    assert re.search(r"[\d,]+ of [\d,]+ curves are thinned to \d+ points\. 8 pictures are too many", found.text)
    assert len(sizes(found)) == 8
    monkeypatch.setattr("rnnjax.report.html.BYTES", limit := summary.bytes + 6500 - sum(sizes(found)) // 2)
    summary, found = page(tmp_path / "runs")
    left = int(re.search(r"and (\d) of them found no place", found.text)[1])
    assert summary.bytes < limit and 0 < left < 8 and len(sizes(found)) == 8 - left


def test_long_curves_are_thinned_and_the_page_says_so(monkeypatch, page, tmp_path):
    pages.comparison(tmp_path / "runs" / "music")
    monkeypatch.setattr("rnnjax.report.series.POINTS", (2,))
    summary, found = page()
    assert all(len(line["distance"]) == 2 and line["distance"][-1] == 7 for line in found.data["norms"])
    assert "curves are thinned to 2 points" in summary.thinned[0] and summary.thinned[0] in found.text


def test_the_same_files_give_the_same_page(page, tmp_path):
    pages.comparison(tmp_path / "runs" / "music")
    first = page()[0].path.read_bytes()
    assert page()[0].path.read_bytes() == first


def test_without_plotly_the_error_says_what_to_install(monkeypatch, page, tmp_path):
    pages.comparison(tmp_path / "runs" / "music")
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    with pytest.raises(report.ReportError, match=r"pip install -e '.\[report\]'"):
        page()


def test_the_command_prints_verdicts_and_writes_figures(capsys, tmp_path):
    pages.comparison(tmp_path / "runs" / "music", models=("lstm",))
    output = tmp_path / "page.html"
    assert command.main([str(tmp_path / "runs"), f"--output={output}", "--figures"]) == 0
    printed = capsys.readouterr()
    assert re.search(r"music +1 +1 +1 +1 +12\.3", printed.out) and re.search(r"all +1 +1 +1 +1", printed.out)
    assert printed.err == "" and (tmp_path / "page.csv").exists()
    figures = tmp_path / "page_figures"
    drawn = sorted(str(path.relative_to(figures)) for path in figures.rglob("*.*"))
    names = [f"{name}.{kind}" for name in ("curves", "heatmaps", "losses") for kind in ("pdf", "png", "svg")]
    assert drawn == [f"music/{name}" for name in names]


@pytest.mark.full
def test_figures_for_papers_are_the_same_bytes_again(study, tmp_path):
    study(length=6, steps=(0, 10))
    written = []
    for turn in "ab":
        report.write_figures(report.find_studies([tmp_path / "study"]), tmp_path / turn)
        written.append({path.name: path.read_bytes() for path in (tmp_path / turn).rglob("*.*")})
    assert written[0] == written[1] and len(written[0]) == 9
    assert written[0]["curves.pdf"].startswith(b"%PDF") and b"CreationDate" not in written[0]["curves.pdf"]


@pytest.mark.parametrize("arguments, told", [
    ([], "required: DIR"),
    (["--output=x.txt", "runs"], "ends in .html"),
])  # fmt: skip
def test_a_wrong_command_line_exits_with_2(arguments, told, capsys):
    with pytest.raises(SystemExit) as exited:
        command.main(arguments)
    assert exited.value.code == 2 and told in capsys.readouterr().err


def test_a_report_that_cannot_be_written_exits_with_1(tmp_path, capsys):
    pages.comparison(tmp_path / "music")
    (tmp_path / "file").write_text("")
    assert command.main([str(tmp_path), f"--output={tmp_path / 'file' / 'x.html'}"]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_numbers_that_json_has_not_are_left_out(page, tmp_path):
    folder = pages.comparison(tmp_path / "runs" / "music", models=("lstm",))
    (folder / "lstm" / "metrics.jsonl").write_text(
        '{"step": 0, "kind": "eval", "split": "valid", "loss": NaN}\n'
        '{"step": 1, "kind": "eval", "split": "valid", "loss": 1.0}\n'
        '{"step": 2, "kind": "eval", "split": "valid", "loss": "no number"}\n'
    )
    _, found = page()
    (line,) = found.data["losses"]
    assert line["values"] == [None, 1.0, None] and not any(map(math.isnan, filter(None, line["values"])))
