"""The page in a real browser: it shows the view, light and dark, on a phone too, and runs nothing that data says."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from tests.observe.dashboard import browser
from tests.observe.dashboard.recorded_join import recorded
from watersmeet.observe.dashboard.dashboard_view import (
    Block,
    DashboardView,
    Figure,
    FunnelHop,
    FunnelStep,
    JoinView,
    Lane,
    LogEntry,
    StateMap,
    Table,
    TableCell,
    Verdict,
)
from watersmeet.observe.serving import PageServer, serve

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not browser.is_there(), reason=browser.MISSING)]
EVIL = "<img src=x onerror=\"document.title='stolen'\"><script>document.title='stolen'</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    folder = tmp_path_factory.mktemp("checkpoint")
    recorded(folder)
    with serve(str(folder)) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    with browser.Browser() as opened:
        yield opened


def test_the_page_shows_the_view_and_follows_it(page: PageServer, chromium: browser.Browser, tmp_path: Path) -> None:
    chromium.open(page.address)
    text = chromium.run("return document.body.innerText")
    for part in (
        "Stopped",
        "batch time",
        "abs(a.x - b.x) < 2",
        "b · holds watermark",
        "a → b",
        "node 1",
        "late: before",
    ):
        assert part in text
    assert "nearly: abs(a.x - b.x) = " in text
    assert chromium.run("return document.querySelectorAll('.track b').length") > 3
    assert chromium.run("return document.querySelectorAll('svg.spark path').length") > 5
    chromium.run("document.querySelector('.track b').click()")
    assert "leaves once the watermark passes" in chromium.run("return document.querySelector('.caption').textContent")
    view = page.views.look()
    with showing(page, replace(view, verdict=Verdict("bad", "Trouble", ("Now.",)))):
        chromium.wait("return document.getElementById('verdict').innerText.includes('Trouble')")
    assert chromium.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_it_is_readable_on_any_screen(
    page: PageServer, chromium: browser.Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    chromium.open(page.address, width, scheme=scheme)
    assert chromium.run("return document.documentElement.scrollWidth") <= width
    light = chromium.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
    assert (light > 200) == (scheme == "light")
    small = (
        "return [...document.querySelectorAll('main *')].filter((e) => parseFloat(getComputedStyle(e).fontSize) < 12)"
    )
    assert chromium.run(f"{small}.length") == 0
    chromium.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


@contextmanager
def showing(page: PageServer, view: DashboardView) -> Iterator[None]:
    """Let the page show a view."""
    page.views.look = lambda: view  # type: ignore[method-assign]
    try:
        yield
    finally:
        del page.views.look


OUTSIDE = """
return [...document.querySelectorAll('body *')].filter((element) => !element.closest('.scroll table, svg')
  && element.getBoundingClientRect().right > innerWidth).map((element) => element.outerHTML.slice(0, 80))
"""


def test_on_a_phone_tables_scroll_in_their_place(page: PageServer, chromium: browser.Browser) -> None:
    view = page.views.look()
    (join,) = view.joins
    rows = tuple((TableCell(f"{row[0].text} of a stream with a long name"), *row[1:]) for row in join.streams.rows)
    long = replace(join, where="a.x = b.x AND " * 20, streams=replace(join.streams, rows=rows))
    with showing(page, replace(view, title="deliveries_" * 12, facts="PSP " * 40, joins=(long,))):
        chromium.open(page.address, 390)
    assert chromium.run("return document.documentElement.scrollWidth") == 390
    assert chromium.run(OUTSIDE) == []
    first = "document.querySelector('.full .scroll')"
    assert chromium.run(f"return {first}.scrollWidth > 2 * {first}.clientWidth")
    chromium.run(f"{first}.scrollLeft = 400")
    name = f"{first}.querySelector('td').getBoundingClientRect().left"
    assert chromium.run(f"return Math.abs({name} - {first}.getBoundingClientRect().left) < 1")  # it stays in sight


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_steps_of_a_batch_have_colours_that_can_be_told_apart(
    page: PageServer, chromium: browser.Browser, scheme: str
) -> None:
    chromium.open(page.address, scheme=scheme)
    colours = [
        chromium.run(
            f"return getComputedStyle(document.querySelector('.chart .{step}')).fill.match(/\\d+/g).map(Number)"
        )
        for step in ("plan", "job", "commit")
    ]
    for one, other in combinations(colours, 2):
        assert sum((x - y) ** 2 for x, y in zip(one, other, strict=True)) ** 0.5 > 80
        assert max(abs(x - y) for x, y in zip(one, other, strict=True)) > 60


EMPTY = """
const bottom = (element) => element.getBoundingClientRect().bottom;
return Math.max(...[...document.querySelectorAll('.card')].map((card) =>
  bottom(card) - Math.max(...[...card.children].map(bottom))));
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_no_card_is_mostly_empty(page: PageServer, chromium: browser.Browser, nodes: int) -> None:
    view = page.views.look()
    (join,) = view.joins
    few = replace(join, nodes=replace(join.nodes, rows=join.nodes.rows[:nodes]))
    with showing(page, replace(view, joins=(few,))):
        chromium.open(page.address)
    assert chromium.run(EMPTY) < 30


def test_nothing_that_data_says_is_run(page: PageServer, chromium: browser.Browser) -> None:
    table = Table((EVIL,), ((TableCell(EVIL, share=0.5),),), note=EVIL)
    state = StateMap((Lane(EVIL, EVIL, (Block(0, 1, 1, EVIL),)),), EVIL, EVIL, 0.5, table)
    join = JoinView(
        EVIL, EVIL, EVIL, table, (FunnelHop(EVIL, (FunnelStep(EVIL, EVIL, 1, EVIL, (EVIL,)),)),), table, state, table
    )
    evil = DashboardView(
        *(EVIL, EVIL, EVIL, EVIL, Verdict("bad", "Evil", (EVIL,))),
        figures=(Figure(EVIL, EVIL, EVIL),),
        joins=(join,),
        owed_results=table,
        decisions=(LogEntry(EVIL, EVIL),),
        refused_rows=table,
    )
    with showing(page, evil):
        chromium.open(page.address)
    assert chromium.run("return document.title").startswith("Evil")
    assert chromium.run("return document.querySelectorAll('img, main script').length") == 0
    assert chromium.run("return document.body.innerText").count(EVIL) > 15


def test_it_says_so_when_nobody_answers_any_more(chromium: browser.Browser, tmp_path: Path) -> None:
    recorded(tmp_path, batches=1)
    with serve(str(tmp_path)) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        chromium.open(server.address)
        server.shutdown()
    chromium.wait("return document.getElementById('lost').textContent.startsWith('No answer')")
