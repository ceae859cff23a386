"""The page in headless Chromium, from disk and without a network: it draws, and everything on it that moves does."""

import shutil

import pages
import pytest

from rnnjax import report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser():
    """The system's Chromium; nothing is downloaded."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: .[dev] has it")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory, write_study):
    """The report of two comparisons, a study of the four cells, and what tries to run scripts."""
    folder = tmp_path_factory.mktemp("report")
    write_study(folder / "runs" / "study", length=40, steps=(0, 10, 100, 1000))
    pages.comparison(folder / "runs" / "music=2", config={"train": {"learning_rate": 0.1}})
    pages.comparison(folder / "runs" / EVIL, models=("lstm", f"gru-{EVIL}"), config={"train": {"learning_rate": 1}})
    (folder / "runs" / EVIL / "claims.json").write_text("{")
    return report.write_html([folder / "runs"], folder / "report.html").path


@pytest.fixture
def page(browser, made):
    """The page when it has drawn. Fails where the console says anything, or a byte is asked for."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, color_scheme="light")
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(made.as_uri())
    page.wait_for_selector("html[data-drawn=yes]")
    yield page
    page.wait_for_timeout(100)
    context.close()
    assert said == []
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} == {made.as_uri()}


def until(page, expression):
    """Returns when it is true; Playwright's own `wait_for_function` is stopped by the page's policy."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"in 10 seconds it was never true that {expression}")


def lines(page, chart):
    """{name: how often it is drawn} of a chart's lines; bands have no name."""
    names = page.evaluate(f"document.getElementById('{chart}').data.filter(t => t.name).map(t => t.name)")
    return {name: names.count(name) for name in sorted(set(names))}


def choose(page, group):
    page.select_option("#group", label=group)
    until(page, f"document.getElementById('group').selectedOptions[0].text === '{group}'")


def test_the_page_draws_its_charts_and_says_nothing_on_the_console(page):
    choose(page, "gradient_norms")
    assert lines(page, "norm") == {"elman": 1, "gru": 1, "jordan": 1, "lstm": 1}
    assert page.locator("#heat svg.main-svg").count() > 0 and page.locator("#charts-failed").is_hidden()
    assert page.evaluate("document.getElementById('norm').layout.yaxis.type") == "log"


@pytest.mark.full
def test_cells_seeds_runs_and_splits_are_switched(page):
    choose(page, "gradient_norms")
    page.click("#toggles .chip:has-text('jordan')")
    assert set(lines(page, "norm")) == {"elman", "gru", "lstm"}
    page.click("#toggles .chip:has-text('jordan')")
    assert set(lines(page, "norm")) == {"elman", "gru", "jordan", "lstm"}
    choose(page, "music")
    before = lines(page, "loss")
    page.click("#toggles .chip:has-text('seed=1')")
    after = lines(page, "loss")
    assert after and all("seed=2" in name for name in after) and len(before) == 2 * len(after)
    page.click("#toggles .chip:has-text('training batches')")
    assert sum(lines(page, "loss").values()) == sum(after.values()) / 2
    page.click("#run-toggles summary")
    page.fill("#run-list input[type=search]", "music=2")
    page.click("#run-list button:has-text('none')")
    assert not any("music=2" in name for name in lines(page, "loss"))
    assert page.inner_text("#run-count") == "Runs: 1 of 2 shown"
    for text in ("seed=2", "lstm"):
        page.click(f"#toggles .chip:has-text('{text}') >> nth=0")
    assert page.locator("#loss-empty").is_visible()


@pytest.mark.full
def test_log_and_linear_and_first_and_last(page):
    choose(page, "gradient_norms")
    curve = "JSON.stringify(document.getElementById('norm').data.filter(t => t.name).map(t => t.y))"
    last = page.evaluate(curve)
    page.click("#norm-switches button:has-text('first probe')")
    assert page.evaluate(curve) != last and "step 0" in page.inner_text("#norm-title")
    page.click("#norm-switches button:has-text('linear')")
    assert page.evaluate("document.getElementById('norm').layout.yaxis.type") == "linear"
    assert page.evaluate("document.getElementById('heat').data[0].zmin") == 0
    page.click("#loss-switches button:has-text('linear') >> nth=0")
    assert page.evaluate("document.getElementById('loss').layout.yaxis.type") == "linear"
    page.click("#loss-switches button:has-text('log') >> nth=1")
    assert page.evaluate("document.getElementById('loss').layout.xaxis.type") == "log"


@pytest.mark.full
def test_the_slider_moves_the_row_and_the_curve_beside_it(page):
    choose(page, "gradient_norms")
    page.select_option("#heat-line", label="lstm")
    row = "document.getElementById('heat').layout.shapes[0].y0"
    curve = "document.getElementById('heat-curve').data.at(-1).y"
    assert page.evaluate(row) == 2.5 and "1,000" in page.inner_text("#heat-at")
    before = page.evaluate(curve)
    page.focus("#heat-step")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(row) == 1.5 and "step 100 of 1,000" in page.inner_text("#heat-at")
    assert page.evaluate(curve) != before and "step 100" in page.inner_text("#heat-curve-title")
    values = page.evaluate("document.getElementById('heat').data[0].z[2]")
    assert values[0] == 0 and [round(10**value, 9) for value in values] == [round(v, 9) for v in page.evaluate(curve)]
    box = page.locator("#heat .nsewdrag").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 5)
    until(page, f"{row} === -0.5")
    assert page.input_value("#heat-step") == "0"


@pytest.mark.full
def test_values_are_told_under_the_mouse(page):
    choose(page, "gradient_norms")
    page.locator("#heat").scroll_into_view_if_needed()
    page.locator("#norm").scroll_into_view_if_needed()
    box = page.locator("#norm .nsewdrag").first.bounding_box()
    x, y = page.evaluate("""() => {
        const {_fullLayout: {xaxis, yaxis}, data} = document.getElementById("norm");
        return [xaxis.c2p(9), yaxis.c2p(data.find(line => line.name === "gru").y[9])];
    }""")
    page.mouse.move(box["x"] + x + 3, box["y"] + y + 3)
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.wait_for_selector("#norm .hoverlayer .hovertext")
    assert "steps back" in page.text_content("#norm .hoverlayer")
    page.locator("#heat").scroll_into_view_if_needed()
    box = page.locator("#heat .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 25, box["y"] + 20)
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.wait_for_selector("#heat .hoverlayer .hovertext")
    assert "of distance 0" in page.text_content("#heat .hoverlayer")


@pytest.mark.full
def test_the_table_sorts_and_filters(page):
    def column(name):
        heads = page.locator("#runs thead button").all_text_contents()
        rows = page.locator("#runs tbody tr:visible")
        return [rows.nth(at).locator("td").nth(heads.index(name)).text_content() for at in range(rows.count())]

    page.click("#runs th button:text-is('parameters')")
    known = [int(value) for value in column("parameters") if value]
    assert known == sorted(known) and column("parameters")[-1] == ""
    page.click("#runs th button:text-is('parameters')")
    assert [int(value) for value in column("parameters") if value] == known[::-1] and column("parameters")[-1] == ""
    assert page.get_attribute("#runs th:has-text('parameters')", "aria-sort") == "descending"
    assert page.locator("#runs th:has-text('accuracy')").is_visible()
    page.select_option("#runs select", label="gradient_norms")
    assert len(column("model")) == 4 and page.locator("#runs th:has-text('accuracy')").is_hidden()
    page.fill("#runs input", "jordan")
    assert column("model") == ["jordan"] and page.inner_text("#runs .count").startswith("1 of 8 rows")


@pytest.mark.full
def test_claims_are_chosen_by_verdict_and_words(page):
    rows = page.locator("#claims tbody tr:visible")
    assert rows.count() == 5
    page.click("#claims .chip[data-verdict=held]")
    assert rows.count() == 3 and page.locator("#claims .study:visible").count() == 1
    page.fill("#claims input", "greff")
    assert rows.count() == 1


@pytest.mark.full
def test_the_theme_is_the_systems_until_it_is_chosen(page):
    theme, paint = "document.documentElement.dataset.theme", "document.getElementById('norm').layout.font.color"
    assert page.evaluate(theme) == "light"
    light = page.evaluate(paint)
    page.emulate_media(color_scheme="dark")
    until(page, f"{theme} === 'dark' && {paint} !== '{light}'")
    page.click("#theme")
    assert page.evaluate(theme) == "light" and page.evaluate(paint) == light
    page.reload()
    page.wait_for_selector("html[data-drawn=yes]")
    assert page.evaluate(theme) == "light"  # the choice is kept


@pytest.mark.full
@pytest.mark.parametrize("width", [1400, 900, 500])
def test_nothing_is_wider_than_the_window(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    until(page, f"document.documentElement.scrollWidth <= {width}")  # the charts follow
