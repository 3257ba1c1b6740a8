"""Where options come from when the command line does not say: environment, presets, the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spec_cpu_cli
import typer
from program import run_program
from spec_cpu_cli import settings
from spec_cpu_cli.app import app

import spec_cpu
from spec_cpu.errors import UsageError

ROOT: Any = typer.main.get_command(app)
COMMANDS = dict(settings.commands(ROOT))
OPTIONS = [
    pytest.param(words, option, id=f"{' '.join(words)} {settings.flag(option)}")
    for words, command in COMMANDS.items()
    for option in settings.options(command)
]

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Makes a settings file of some text."""

    def write(text: str) -> Path:
        file = tmp_path / "config.toml"
        file.write_text(text)
        monkeypatch.setenv(settings.VARIABLE, str(file))
        return file

    return write


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The parameters that a command is called with; it is not carried out."""

    def call(*args: str) -> dict[str, Any]:
        word, *rest = args
        command = COMMANDS[word,]
        with command.make_context(word, list(rest), parent=ROOT.context_class(ROOT)) as context:
            return dict(context.params)

    return call


Called = Callable[..., dict[str, Any]]


def test_the_usual_order(write: Write, called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    assert called("run")["temp"] == 0.8
    write("temp = 0.1\n[presets.hot]\ntemp = 0.2\n")
    assert called("run")["temp"] == 0.1
    assert called("run", "--preset", "hot")["temp"] == 0.2
    monkeypatch.setenv("SPEC_CPU_TEMP", "0.3")
    assert called("run", "--preset", "hot")["temp"] == 0.3
    assert called("run", "--preset", "hot", "--temp", "0.4")["temp"] == 0.4


def test_the_file_that_the_page_shows(write: Write, called: Called) -> None:
    page = (Path(spec_cpu_cli.__file__).parents[2] / "docs" / "settings.md").read_text()
    write(page.partition("```toml\n")[2].partition("```")[0])
    assert called("run")["threads"] == 4
    assert called("chat")["system"] == "You are brief."
    assert called("bench")["max_tokens"] == 96
    demo = called("run", "--preset", "demo")
    assert (demo["pair"], demo["target"], demo["draft"]) == ("smollm2-135m", None, None)
    assert called("run", "--preset", "code")["lookup"] == [Path.home() / "project" / "api.md"]


def test_a_table_is_for_one_command(write: Write, called: Called) -> None:
    write("max-tokens = 7\n[bench]\nmax_tokens = 8\n")
    assert called("run")["max_tokens"] == called("chat")["max_tokens"] == 7
    assert called("bench")["max_tokens"] == 8


def test_a_preset_has_what_several_commands_take(write: Write, called: Called) -> None:
    write('preset = "a"\n[presets.a]\nthreads = 3\nmax-k = 5\ntemp = 0\n[presets.b]\nthreads = 4\n')
    assert called("plan")["threads"] == called("run")["threads"] == 3
    assert called("plan")["max_k"] == 5
    assert called("run")["temp"] == 0
    assert called("run", "--preset", "b")["threads"] == 4
    assert called("run", "--preset", "b")["temp"] == 0.8


def test_a_preset_of_the_environment(
    write: Write, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("[presets.a]\nthreads = 3\n")
    monkeypatch.setenv("SPEC_CPU_PRESET", "a")
    assert called("run")["threads"] == 3


def test_flags_are_turned_off_again(
    write: Write, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("color = true\n")
    assert called("run")["color"] is True
    assert called("run", "--no-color")["color"] is False
    monkeypatch.setenv("SPEC_CPU_COLOR", "0")
    assert called("run")["color"] is False


def test_lists(write: Write, called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    write('stop = "END"\nlookup = ["~/a", "b"]\n')
    assert called("run")["stop"] == ["END"]
    assert called("run")["lookup"] == [Path.home() / "a", Path("b")]
    assert called("run", "--stop", "x")["stop"] == ["x"]
    monkeypatch.setenv("SPEC_CPU_STOP", "one two")
    assert called("run")["stop"] == ["one", "two"]


@pytest.mark.parametrize(
    ("file", "args", "wanted"),
    [
        ('pair = "a"', ["-m", "b"], {"target": "b", "pair": None}),
        (
            'target = "a"\ndraft = "c"',
            ["--pair", "b"],
            {"pair": "b", "target": None, "draft": None},
        ),
        ('target = "a"\ndraft = "c"', ["-m", "b"], {"target": "b", "draft": None}),
        ('target = "a"\ndraft = "c"', ["-m", "b", "-d", "d"], {"target": "b", "draft": "d"}),
        ('target = "a"', ["-d", "d"], {"target": "a", "draft": "d"}),
        ('target = "a"\nmemory = "on"', ["-d", "none"], {"memory": None, "target": "a"}),
        ("draft-tokens = 4", ["-d", "none"], {"draft_tokens": None}),
        ('target = "a"\nmemory = "on"', ["-d", "ngram,b"], {"memory": "on"}),
        ('system = "a"', ["--raw"], {"raw": True, "system": None}),
        ("raw = true", ["--system", "a"], {"raw": False, "system": "a"}),
        ('pair = "a"\n[presets.p]\ntarget = "b"', ["--preset", "p"], {"target": "b", "pair": None}),
        ('pair = "a"\ntarget = "b"', [], {"target": "b", "pair": "a"}),
    ],
)
def test_what_is_weaker_gives_way_to_what_contradicts_it(
    write: Write, called: Called, file: str, args: list[str], wanted: dict[str, Any]
) -> None:
    write(file)
    found = called("run", *args)
    assert {name: found[name] for name in wanted} == wanted


def test_the_environment_gives_way_as_well(
    write: Write, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('pair = "a"')
    monkeypatch.setenv("SPEC_CPU_TARGET", "b")
    assert (called("run")["target"], called("run")["pair"]) == ("b", None)
    found = called("run", "--pair", "c")
    assert (found["target"], found["pair"]) == (None, "c")


@pytest.mark.parametrize(("words", "option"), OPTIONS)
def test_every_option_can_be_a_setting(
    write: Write, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], option: Any
) -> None:
    """Law: what the file says arrives where it would from the command line, and so does what the
    environment says."""
    key = settings.flag(option)[2:]
    if key == "preset":
        return
    monkeypatch.delenv(option.envvar, raising=False)
    command = COMMANDS[words]
    typed, of_file = _example(option)
    required = [
        word
        for other in settings.options(command)
        if other.required and other is not option
        for word in (settings.flag(other), "x")
    ]
    required += ["1" for other in command.params if other.param_type_name == "argument"]

    def value(*args: str) -> Any:
        parent = ROOT.context_class(ROOT)
        for word in words[:-1]:
            parent = ROOT.context_class(ROOT.commands[word], info_name=word, parent=parent)
        with command.make_context(words[-1], [*required, *args], parent=parent) as context:
            return context.params[option.name]

    wanted = value(settings.flag(option), *typed)
    table = "".join(f"[{'.'.join(words)}]\n")
    for text in (f"{key} = {of_file}\n", f"{table}{key.replace('-', '_')} = {of_file}\n"):
        write(text)
        assert value() == wanted
    write("")
    monkeypatch.setenv(option.envvar, typed[0] if typed else "1")
    assert value() == wanted


def _example(option: Any) -> tuple[list[str], str]:
    """Something that the option takes, as it is typed, and as it is in a file."""
    if option.is_flag:
        return [], "true"
    kind = settings.type_of(next(one for one in COMMANDS.values() if option in one.params), option)
    typed = {int: "3", float: "0.5", str: "some", Path: "some/file"}[kind[-1]]
    typed = {"rpc": "box:50052"}.get(option.name, typed)
    return [typed], typed if kind[-1] in (int, float) else json.dumps(typed)


def refusals() -> Iterator[tuple[str, str]]:
    yield "tempp = 1", "tempp: there is no such option; did you mean temp?"
    yield "[run]\nmax-k = 3", "run.max-k: there is no such option"
    yield "[runn]\ntemp = 3", "runn: there is no such option"
    yield "[presets.a]\nzzz = 1", "presets.a.zzz: there is no such option"
    yield 'top-p = "warm"', "top-p: takes a number, not 'warm'"
    yield (
        'temp = "warm"',
        ": temp takes a number, not 'warm'",
    )  # a list of temperatures for bench, but none for run
    yield "temp = true", "temp: takes a number, not True"
    yield "threads = 1.5", "threads: takes a whole number, not 1.5"
    yield "color = 1", "color: takes true or false, not 1"
    yield "target = true", "target: takes text, not True"
    yield 'stop = [["a"]]', "stop: takes text, or several in a list, not [['a']]"
    yield "lookup = [1]", "lookup: takes a file's name, in quotes, or several in a list, not [1]"
    yield 'target = ["a"]', "target: takes text, not ['a']"
    yield "presets = 1", "presets: holds tables: [presets.NAME]"
    yield "[presets]\na = 1", "presets.a: is a table: [presets.a]"
    yield '[presets.a]\npreset = "b"', "presets.a.preset: a preset cannot name another one"
    yield 'prompt = "x"', "prompt: is no setting: give it on the command line"
    yield "temp = ", "is not TOML"
    yield "temp = 1979-05-27", "temp: takes a number"


@pytest.mark.parametrize(("text", "problem"), list(refusals()))
def test_what_makes_no_sense_in_the_file_is_one_line(
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    problem: str,
) -> None:
    file = write(text)
    assert run_program(monkeypatch, "run", "hi") == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith(f"spec-cpu: {file}")
    assert problem in err


@pytest.mark.parametrize("text", ["\0", "temp", "[", "[[run]]", "[run]\n[run]", "a = 1\na = 1"])
def test_what_is_no_toml_is_one_line(write: Write, called: Called, text: str) -> None:
    write(text)
    with pytest.raises(UsageError) as refused:
        called("run")
    assert len(str(refused.value).splitlines()) == 1


def test_a_file_that_is_named_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(settings.VARIABLE, str(tmp_path / "absent.toml"))
    assert run_program(monkeypatch, "run", "hi") == 2
    assert "absent.toml, but there is no such file" in capsys.readouterr().err


def test_no_file_is_as_good_as_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: Called
) -> None:
    monkeypatch.delenv(settings.VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert called("run")["temp"] == 0.8
    assert settings.path() == tmp_path / "spec-cpu" / "config.toml"


def test_an_unknown_preset_names_those_there_are(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("[presets.code]\ntemp = 0\n")
    assert run_program(monkeypatch, "run", "hi", "--preset", "cod") == 2
    assert f"no preset is called 'cod' in {file}; there are: code" in capsys.readouterr().err


def test_presets_are_completed(write: Write) -> None:
    option = next(one for one in COMMANDS["run",].params if one.name == "preset")

    def offered(begun: str) -> list[str]:
        context = ROOT.context_class(ROOT)
        return [item.value for item in option.shell_complete(context, begun)]

    write("[presets.code]\n[presets.core]\n[presets.other]\n")
    assert offered("co") == ["code", "core"]
    write("[presets.code")
    assert offered("co") == []


def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPEC_CPU_TEMP", "warm")
    assert run_program(monkeypatch, "run", "hi") == 2
    assert "SPEC_CPU_TEMP" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "variable", "place"),
    [("top-k = -1", {}, "config.toml"), ("", {"SPEC_CPU_TOP_K": "-1"}, "SPEC_CPU_TOP_K")],
)
def test_a_value_out_of_range_says_where_it_is_set(
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    variable: dict[str, str],
    place: str,
) -> None:
    write(text)
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    assert run_program(monkeypatch, "run", "hi") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("spec-cpu: --top-k must be")
    assert line.endswith(f"{place})")
    assert run_program(monkeypatch, "run", "hi", "--top-k", "-2") == 2
    assert "is set in" not in capsys.readouterr().err


class TestShow:
    def show(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str
    ) -> list[dict[str, Any]]:
        assert run_program(monkeypatch, "config", "show", "--json", *args) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    def test_it_says_where_each_value_comes_from(
        self, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = write('temp = 0.1\npair = "a"\ntop-k = 5\n[presets.p]\ntop-k = 6\n')
        monkeypatch.setenv("SPEC_CPU_TARGET", "b")
        shown = self.show(monkeypatch, capsys, "run", "--preset", "p")
        found = {one["option"]: (one["value"], one["origin"]) for one in shown}
        assert found["temp"] == ("0.1", str(file))
        assert found["top-k"] == ("6", "preset p")
        assert found["target"] == ("b", "SPEC_CPU_TARGET")
        assert found["pair"][1] == "default"
        assert found["preset"] == ("p", "the command line")
        assert found["min-p"] == ("0.05", "default")

    def test_it_has_every_option_of_every_command_once(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shown = self.show(monkeypatch, capsys)
        listed = [(command, one["option"]) for one in shown for command in one["commands"]]
        assert sorted(listed) == sorted(
            (" ".join(words), settings.flag(option)[2:])
            for words, command in COMMANDS.items()
            for option in settings.options(command)
        )

    def test_for_people(
        self, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = write('max-tokens = 5\npreset = "code"\n[presets.code]\ntemp = 0\n')
        assert run_program(monkeypatch, "config", "show", "run") == 0
        out = capsys.readouterr().out
        assert f"settings file: {file}\npresets: code\n" in out
        rows = [line.split() for line in out.splitlines()]
        assert ["max-tokens", "5", str(file)] in rows
        assert ["preset", "code", str(file)] in rows
        assert ["temp", "0", "preset", "code"] in rows

    def test_no_such_command(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run_program(monkeypatch, "config", "show", "walk") == 2
        assert "there is no command walk" in capsys.readouterr().err

    def test_path(
        self, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = write("")
        assert run_program(monkeypatch, "config", "path") == 0
        assert capsys.readouterr().out == f"{file}\n"


NUMBERS = [
    one
    for one in OPTIONS
    if settings.type_of(COMMANDS[tuple(one.values[0])], one.values[1])[-1] in (int, float)
]


@pytest.mark.parametrize(("words", "option"), NUMBERS)
def test_what_is_no_number_is_refused_in_our_words(
    words: tuple[str, ...],
    option: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wherever it comes from: the command line, the environment, a text in the file."""
    known = settings.options(COMMANDS[tuple(words)])
    needed = [word for one in known if one.required for word in (settings.flag(one), "x")]
    assert run_program(monkeypatch, *words, *needed, settings.flag(option), "many") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"spec-cpu: {settings.flag(option)}")
    assert re.search(r" takes a (whole )?number", line)
    assert "not 'many' (see spec-cpu" in line
    monkeypatch.setenv(option.envvar, "many")
    assert run_program(monkeypatch, *words, *needed) == 2
    (again,) = capsys.readouterr().err.splitlines()
    assert again == line.replace("spec-cpu: ", f"spec-cpu: {option.envvar}: ", 1)


def test_a_number_out_of_range_is_told_the_range(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("[plan]\nmax-k = 77\n")
    assert run_program(monkeypatch, "plan") == 2
    told = "max-k takes a whole number from 1 to 31, not '77' (see spec-cpu plan --help)"
    assert capsys.readouterr().err == f"spec-cpu: {file}: {told}\n"
    assert run_program(monkeypatch, "models", "suggest", "--memory", "0") == 2
    assert "--memory takes a number of at least 0.1, not '0'" in capsys.readouterr().err


BROKEN = ["temp = = 1", "no-such-option = 1", "max-tokens = 'many'", None]


@pytest.fixture(params=BROKEN, ids=["no TOML", "no option", "no number", "no file"])
def broken(request: pytest.FixtureRequest, write: Write) -> Path:
    """A settings file that cannot be used."""
    file = write(request.param or "")
    if request.param is None:
        file.unlink()
    return file


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_broken_file_keeps_nobody_from_help(
    broken: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_program(monkeypatch, *words, "--help") == 0
    shown = capsys.readouterr()
    assert "Usage: " in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    "words", [["config", "path"], ["config", "show"], ["cache", "show"], ["models", "list"]]
)
def test_a_broken_file_keeps_nobody_from_mending_it(
    broken: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_program(monkeypatch, *words) == 0
    shown = capsys.readouterr()
    assert shown.out
    (line,) = shown.err.splitlines()
    assert str(broken) in line
    assert line.endswith("going on without the settings file")
    assert run_program(monkeypatch, "--version") == 0


LOADING = [words for words, one in COMMANDS.items() if any(o.name == "preset" for o in one.params)]
LOADING.remove(("config", "show"))


@pytest.mark.parametrize("words", LOADING, ids=" ".join)
def test_a_broken_file_stops_what_goes_by_it_in_one_line(
    broken: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_program(monkeypatch, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(broken) in line


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("SPEC_CPU_TMEP", "SPEC_CPU_TEMP"),
        ("SPEC_CPU_CACHES", "SPEC_CPU_CACHE"),
        ("SPEC_CPU_ZZZ", ""),
    ],
)
def test_a_misspelt_variable_is_told_once(
    name: str, near: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "1")
    assert run_program(monkeypatch, "cache", "show") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"note: {name} is no setting, and has no effect: ")
    assert line.endswith(f"did you mean {near}?" if near else "lists the options")


def test_no_variable_that_has_an_effect_is_called_misspelt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of every option, and those that the library itself reads."""
    names = {option.values[1].envvar for option in OPTIONS}
    for file in Path(spec_cpu.__file__).parent.rglob("*.py"):
        names |= set(re.findall(r'"(SPEC_CPU_[A-Z_]+)"', file.read_text()))
    for name in names:
        monkeypatch.setenv(name, "1")
    assert list(settings.unknown_variables(ROOT.context_class(ROOT))) == []


@pytest.mark.parametrize("key", ["pair", "target", "draft"])
def test_a_name_of_no_model_says_where_it_is_set(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    file = write(f'{key} = "nothing-like-it"')
    monkeypatch.setattr("spec_cpu.models.fetch.fetch", lambda model, _report: model.name)
    assert run_program(monkeypatch, "run", "hi") == 2
    assert f"(--{key} is set in {file})" in capsys.readouterr().err
