"""The screens: the terminal, and a page that answers only those who may ask."""

import http.client
import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from tests.observe.dashboard.recorded_join import recorded
from watersmeet import cli
from watersmeet.errors import DefinitionError
from watersmeet.observe.dashboard.dashboard_view import DashboardView, Table, TableCell, Verdict
from watersmeet.observe.dashboard.terminal import screen
from watersmeet.observe.serving import PageServer, render_page, serve, watch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    recorded(path)
    return path


@pytest.fixture
def server(folder: Path) -> Iterator[PageServer]:
    with serve(str(folder)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: PageServer, path: str, host: str | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_the_page_and_its_view(server: PageServer) -> None:
    path = urlsplit(server.address)
    assert path.hostname == "127.0.0.1" and server.server_address[0] == "127.0.0.1"
    status, headers, body = ask(server, f"/?{path.query}")
    assert status == 200 and b"NONCE" not in body
    policy = headers["Content-Security-Policy"]
    nonce = policy.partition("'nonce-")[2].partition("'")[0]
    assert body.count(f'nonce="{nonce}"'.encode()) == 2 and policy.startswith("default-src 'none'")
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"") and b"https://" not in body
    status, headers, body = ask(server, f"/view.json?{path.query}", f"localhost:{server.server_port}")
    assert status == 200 and json.loads(body)["joins"][0]["where"] == "abs(a.x - b.x) < 2"
    assert headers["X-Content-Type-Options"] == "nosniff" and "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("path", ["/", "/view.json", "/?token=", "/view.json?token=wrong", "/view.json?token=%ff"])
def test_without_the_token_nothing_is_told(server: PageServer, path: str) -> None:
    status, _, body = ask(server, path)
    assert status == 403 and json.loads(body) == {
        "error": "The token is missing or wrong: use the address that was printed."
    }


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1"])
def test_a_name_that_is_made_to_point_here_is_refused(server: PageServer, host: str) -> None:
    assert ask(server, f"/view.json?token={server.token}", host)[0] == 403


def test_other_pages_and_methods_are_refused(server: PageServer) -> None:
    assert ask(server, f"/../page.py?token={server.token}")[0] == 404
    assert ask(server, f"/?token={server.token}", method="POST")[0] == 501


def test_a_checkpoint_that_goes_is_told_in_a_sentence(tmp_path: Path) -> None:
    recorded(tmp_path, batches=1)
    with serve(str(tmp_path)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        (tmp_path / "watersmeet" / "query.json").unlink()
        server.views._last = None
        status, _, body = ask(server, f"/view.json?token={server.token}")
        server.shutdown()
    assert status == 503 and "has no query.json" in json.loads(body)["error"]


@pytest.mark.parametrize("port", [-1, 70000])
def test_a_port_that_cannot_be_used(folder: Path, port: int) -> None:
    with pytest.raises(DefinitionError, match=rf"Port {port} can't be used: [^.]*; give another, or"):
        serve(str(folder), port)


def test_a_port_that_is_taken(folder: Path, server: PageServer) -> None:
    with pytest.raises(DefinitionError, match="give another, or 0 for any that is free"):
        serve(str(folder), server.server_port)


def printed(view: DashboardView) -> str:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(screen(view, 150))
    return console.export_text()


def test_page_and_terminal_say_what_bars_mean(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watch(str(folder), console=Console(width=190))
    output, html = capsys.readouterr().out, render_page("").decode()
    for text in (output, html):
        assert "bars on a logarithmic scale" in text and "Leaves state next" in text
        assert "by digits" not in text and "the full height" not in text
    headings = next(line for line in output.splitlines() if line.startswith("stream "))
    assert "left state" in headings and "trend" in headings and "gone" not in headings and "course" not in headings


def test_the_terminal_shows_all_parts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watch(str(folder), console=Console(width=150))
    output = capsys.readouterr().out
    for part in (
        "batch time",
        "b · holds watermark",
        "a → b",
        "node 1",
        "Leaves state next",
        "logarithmic",
        "Rows that were not joined",
        "UTC",
    ):
        assert part in output
    assert output.count("nearly: abs(a.x - b.x) = ") > 1


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_cuts_no_word(folder: Path, capsys: pytest.CaptureFixture[str], width: int) -> None:
    watch(str(folder), console=Console(width=width))
    output = capsys.readouterr().out
    assert "…" not in output and max(map(len, output.splitlines())) <= width
    for whole in (
        "sliding 10 seconds",
        "rejected",
        "ahead",
        "22:13:29.0",
        "b · holds watermark",
        "in about",
        "CPU",
        " % pass, ",
    ):
        assert whole in output
    assert output.count("node 0") == 2 and "nearly: abs(a.x - b.x) = " in output


def test_a_terminal_obeys_nothing_that_data_says() -> None:
    evil = "\x1b[2J\x07[bold]x[/bold]"
    table = Table(("row",), ((TableCell(evil),),))
    output = printed(DashboardView(evil, "", "", "", Verdict("bad", "Trouble", (evil,)), refused_rows=table))
    assert "\x1b" not in output and "\x07" not in output and output.count("[bold]x[/bold]") == 3


def test_a_live_screen_is_left_by_interrupting_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(
        "watersmeet.observe.serving.time", SimpleNamespace(sleep=wait, time=time.time, monotonic=time.monotonic)
    )
    console = Console(force_terminal=True, width=100, file=io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        watch(str(folder), every=0.25, console=console)
    assert waits == [0.25] * 3


@pytest.mark.parametrize("interval", ["-1", "0", "nan", "inf", "1e12"])
def test_a_time_between_two_looks_that_is_none(folder: Path, capsys: pytest.CaptureFixture[str], interval: str) -> None:
    assert cli.main(["watch", str(folder), "--every", interval]) == 2
    message = f"watersmeet: every is {float(interval)}: give a number above 0, at most 86400.\n"
    assert capsys.readouterr() == ("", message)


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["watch", str(folder), "--once"]) == 0
    assert "abs(a.x - b.x) < 2" in capsys.readouterr().out

    def interrupted(self: PageServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PageServer, "serve_forever", interrupted)
    assert cli.main(["serve", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")
    assert cli.main(["serve", str(folder / "nowhere")]) == 2
    assert "has no query.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "'' is not a path; give the checkpointLocation of a join."),
        ("s3://", "s3:// names no bucket or host; write s3://NAME/..."),
        ("s3a:///x", "s3a:///x names no bucket or host; write s3a://NAME/..."),
        ("hdfs:/x", "hdfs:/x names no bucket or host; write hdfs://NAME/..."),
        ("file://a/b", "file://a/b: a file: path has no host; write file:///a/b for that folder."),
        ("a:b", "a:b: what follows a: must begin with a slash; write ./a:b for a folder of that name."),
        ("ftp://host/x", "state can't be kept on 'ftp:'"),
        ("s3://bucket/x?nonsense=1", "s3://bucket/x/watersmeet?nonsense=1 can't be opened: "),
        ("s3://[x", "s3://[x/watersmeet can't be opened: "),
    ],
)
@pytest.mark.parametrize("command", [["watch", "--once"], ["serve"], ["why", "--a", "id=1"]])
def test_what_is_no_checkpoint_is_told_in_a_sentence(
    command: list[str], given: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command[0], given, *command[1:]]) == 2
    assert says in capsys.readouterr().err


def test_an_address_that_is_none(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, body = ask(server, "http://[/")
    assert (status, json.loads(body)) == (400, {"error": "The address can't be read: use the one that was printed."})
    assert not capfd.readouterr().err


def test_a_browser_that_has_gone(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        raise ConnectionResetError
    except ConnectionError:
        server.handle_error(None, None)
    assert not capfd.readouterr().err
    try:
        raise KeyError("a fault of ours")
    except KeyError:
        server.handle_error(None, None)
    assert "a fault of ours" in capfd.readouterr().err


@pytest.mark.parametrize("short_duration", ["{}", "file:{}", "file://{}", "{}/"])
def test_every_command_means_the_same_by_a_path(
    tmp_path: Path, short_duration: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, batches=1)
    assert cli.main(["watch", short_duration.format(tmp_path), "--once"]) == 0
    assert (
        cli.main(["why", short_duration.format(tmp_path), "--a", "id=1"]) == 2
    )  # its description is written by Spark's side
    assert f"There is no why.json under {tmp_path}/watersmeet:" in capsys.readouterr().err


HOLD = """
import sys
from watersmeet.state.manifest import leases
from watersmeet.state.manifest.leases import this_process
from watersmeet.state.store.file_format import seal
from watersmeet.state.store.store import Store
store = Store(sys.argv[1])
store.publish(leases.path_of(1), seal(this_process() | {"at": store.root, "token": "x"}))
print("taken", flush=True)
sys.stdin.readline()
"""


def test_one_look_at_a_query_that_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path, batches=3)
    command = [sys.executable, "-c", HOLD, f"{tmp_path}/watersmeet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "taken\n"
        assert cli.main(["watch", "--once", str(tmp_path)]) == 0
        assert "Not running" not in capsys.readouterr().out
        process.kill()
    assert cli.main(["watch", "--once", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "Not running" in output and "Healthy" not in output and f"process {process.pid} on" in output
