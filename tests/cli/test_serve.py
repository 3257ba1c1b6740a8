"""`spec-cpu serve`: from the command line to an answer, and to the end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from program import run_program
from spec_cpu_cli.serve import ServerOptions

if TYPE_CHECKING:
    from conftest import Models, Program

PATIENCE = 600.0  # seconds, after which it hangs
SOON = ["-d", "none", "--slots", "1", "--port", "0"]


@contextmanager
def served(cli: Program, *args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program, and the address that it tells."""
    command = [sys.executable, "-c", "from spec_cpu_cli.main import main; main()", "serve", *args]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=cli.env) as process:
        assert process.stderr is not None
        try:
            lines = iter(process.stderr.readline, "")
            found = (re.search(r" answers at (http://\S+) ", line) for line in lines)
            yield process, next(one[1] for one in found if one)
        finally:
            process.kill()


def ask(url: str, key: str | None = None) -> str:
    data = json.dumps({"prompt": "Once", "max_tokens": 5, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {key}"} if key else {}
    )
    request = urllib.request.Request(f"{url}/v1/completions", data, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return str(json.load(answer)["choices"][0]["text"])


def test_it_answers_as_run_does_and_ends(cli: Program, readable: Models) -> None:
    silent = ["-t", "1", "--logit-bias", "0=-inf", "--logit-bias", "1=-inf"]
    model = ["-m", str(readable.target), *silent]
    with served(cli, *model, *SOON) as (process, url):
        said = ask(url)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    run = cli("run", "Once", "--raw", "-n", "5", "--temp", "0", "-d", "none", "-q", *model)
    assert said.strip() == run.text.strip()
    assert "POST /v1/completions: 200" in rest
    assert "Once" not in rest


def test_it_is_silent_if_it_is_to_be(cli: Program, readable: Models, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# of the house\nfirst\n\n second \n")
    options = ServerOptions(api_key=["third"], api_key_file=keys)
    assert options.keys == ["third", "first", "second"]
    with served(cli, *readable.plain, *SOON[2:], "--api-key-file", str(keys)) as (_, url):
        assert ask(url, "second")
        with pytest.raises(OSError, match="401"):
            ask(url)


WRONG = [
    (["--host", "0.0.0.0"], "--api-key"),
    (["--port", "70000"], "70000"),
    (["--slots", "0"], "0"),
    (["--grace", "-1"], "-1"),
    (["--api-key", " "], "--api-key"),
    (["--api-key-file", "no-such-file"], "no-such-file"),
    (["--api-key-file", "/dev/null"], "/dev/null"),
    (["--temp", "-1"], "--temp"),
    (["--rule", "coin"], "coin"),
    (["--seed", "-1"], "--seed"),
    (["--host", "no-such-host.invalid", "--api-key", "k"], "--host"),
    (["-m", "no-such.gguf"], "no-such.gguf"),
]


@pytest.mark.parametrize(("wrong", "named"), WRONG, ids=[" ".join(wrong) for wrong, _ in WRONG])
def test_what_makes_no_sense_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    readable: Models,
    wrong: list[str],
    named: str,
) -> None:
    assert run_program(monkeypatch, "serve", *readable.plain, "--port", "0", *wrong) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("spec-cpu: ")
    assert named in line


def test_a_port_that_is_in_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], readable: Models
) -> None:
    from spec_cpu.serve.http.server import listen

    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        assert run_program(monkeypatch, "serve", *readable.plain, "--port", port) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert port in line


def test_without_its_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spec_cpu_cli.serve._NEEDED", ("starlette", "no_such_package"))
    assert run_program(monkeypatch, "serve") == 2
    assert 'no_such_package: pip install ".[serve]"' in capsys.readouterr().err


def test_keys_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPEC_CPU_API_KEY", "secret")
    assert run_program(monkeypatch, "config", "show", "serve") == 0
    shown = capsys.readouterr().out
    assert "secret" not in shown
    assert re.search(r"api-key +\(not shown\) +SPEC_CPU_API_KEY", shown)
