"""The flags of llama.cpp: which mean the same here, and what to do in place of the others.

The one home of both: names in `SAME` are understood by every command that has the option, those in
`ELSE` are answered with a pointer, and `docs/from-llama-cli.md` shows this table. To write that
page's table anew: `python -m spec_cpu_cli.llama_flags`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spec_cpu import defaults


@dataclass(frozen=True, slots=True)
class Same:
    """Flags that an option of ours means the same by; `note` says what to know, if anything."""

    names: tuple[str, ...]
    ours: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Else:
    """Flags that there are none of here: what a person does instead, or why nothing is needed.

    `note` goes on from "llama.cpp's FLAG".
    """

    names: tuple[str, ...]
    note: str


SAME = (
    Same(("-m", "--model"), "--target", "a GGUF file, a catalogue name, or OWNER/NAME on the hub"),
    Same(("-hf", "-hfr", "--hf-repo"), "--target", "OWNER/NAME or OWNER/NAME:QUANT, as for `-m`"),
    Same(("-md", "--model-draft", "--spec-draft-model"), "--draft"),
    Same(("-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"), "--draft", "as for `-hf`"),
    Same(
        ("--spec-draft-n-max", "--draft-max", "--draft-n"),
        "--draft-tokens",
        "leave it out: the number is chosen at each step by what pays. llama.cpp's old `--draft N` "
        "is `-k N`; `--draft` names the model here",
    ),
    Same(("-p", "--prompt"), "--prompt", "or as the argument: `spec-cpu run 'TEXT'`"),
    Same(("-f", "--file"), "--file", "alone it is the prompt; after a prompt, it is added to it"),
    Same(("-e", "--escape"), "--escape", "off unless it is given"),
    Same(("--no-escape",), "--no-escape", "the default"),
    Same(
        ("-n", "--predict", "--n-predict"),
        "--max-tokens",
        f"{defaults.MAX_TOKENS} by default; -1: until it ends",
    ),
    Same(("-c", "--ctx-size"), "--ctx", "0: all that the model was trained on"),
    Same(("-t", "--threads"), "--threads"),
    Same(("-sys", "--system-prompt"), "--system"),
    Same(("-r", "--reverse-prompt"), "--stop", "ends the answer; the text itself is not shown"),
    Same(("-no-cnv", "--no-conversation"), "--raw", "continue the text, without a chat template"),
    Same(("--prompt-cache",), "--prompt-cache", "a file of its own format"),
    Same(("--rpc",), "--rpc", "the target's layers go there, all but the output matrix"),
    Same(("-s", "--seed"), "--seed", "leave it out for a new one each time, in place of -1"),
    Same(("--temp", "--temperature"), "--temp"),
    Same(("--top-k",), "--top-k"),
    Same(("--top-p",), "--top-p"),
    Same(("--min-p",), "--min-p"),
    Same(("--repeat-penalty",), "--repeat-penalty"),
    Same(("--presence-penalty",), "--presence-penalty"),
    Same(("--frequency-penalty",), "--frequency-penalty"),
    Same(("--repeat-last-n",), "--repeat-last-n"),
    Same(("-l", "--logit-bias"), "--logit-bias", "as `15=-1`, or as llama.cpp has it: `15-1`"),
    Same(("--ignore-eos",), "--ignore-eos"),
    Same(("-co", "--color"), "--color", "alone, without on or off"),
    Same(("-v", "--log-verbose"), "--llama-log"),
    Same(("--log-disable",), "--quiet"),
    Same(("-h", "--help"), "--help"),
)

_SAMPLER = "is a sampler that is not offered here: --temp, --top-k, --top-p, --min-p and penalties"
_CPU = "does nothing here: models run on the processor alone"
_CORES = "is not offered here: -t says how many threads compute, and taskset on which cores"
_FILE_SAYS = "is not offered here: the model's file says it"
_TEXT = "is not offered here: models read and write text alone"
_CHAT = "is a command here: spec-cpu chat"
_SPEC = "is not needed here: how much is guessed ahead is measured and chosen (see spec-cpu plan)"
_SHOW = "is not needed here: the text goes to standard output, everything else to standard error"
_LOG = "is not offered here: --llama-log shows all of it, --quiet nothing but the text"
_SERVER = "is for the server: spec-cpu serve"
_FORM = "is not offered here: ask for the form in the prompt"

ELSE = (
    Else(("-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"), _CHAT),
    Else(("-mli", "--multiline-input"), "is not needed here: spec-cpu chat takes several lines"),
    Else(("-st", "--single-turn"), "is not needed here: spec-cpu run answers one prompt and ends"),
    Else(("-sysf", "--system-prompt-file"), 'is not offered here: --system "$(cat FILE)"'),
    Else(("-bf", "--binary-file"), "is not needed here: --raw -f FILE reads a text as it is"),
    Else(
        ("--in-prefix", "--in-suffix", "--in-prefix-bos"),
        "is not needed here: the model's chat template puts in what belongs there; --raw does not",
    ),
    Else(
        ("--jinja", "--no-jinja", "--chat-template", "--chat-template-file"),
        "is not needed here: the template in the model's file is used; --raw uses none",
    ),
    Else(
        ("--prompt-cache-all", "--prompt-cache-ro"),
        "is not offered here: --prompt-cache keeps the prompt, and what of it is new",
    ),
    Else(
        ("--keep", "--context-shift", "--no-context-shift"),
        "is not offered here: an answer ends where the context is full; -c makes it larger",
    ),
    Else(("--mlock", "--no-mmap", "--mmap", "-lm", "--load-mode"), "is not needed here: weights "
         "are mapped from the file, or packed for the processor as they are loaded"),
    Else(
        ("-fa", "--flash-attn", "--no-repack", "-nr", "--repack", "--swa-full", "-kvu"),
        "is not needed here: what is fastest on this machine is on (see --kernels)",
    ),
    Else(("-b", "--batch-size", "-ub", "--ubatch-size"), "is not needed here: prompts are read "
         f"{defaults.BATCH} tokens at a time"),
    Else(
        ("-tb", "--threads-batch", "-td", "--threads-draft", "-tbd", "--threads-batch-draft"),
        "is not offered here: -t holds for the prompt, the answer and the draft",
    ),
    Else(("-ctk", "--cache-type-k", "-ctv", "--cache-type-v"), "is not offered here: the context "
         "is kept in 16 bits, a smaller -c takes less memory"),
    Else(("-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict", "--numa"), _CORES),
    Else(("--prio", "--poll"), "is not offered here: nice says how much others are let through"),
    Else(
        ("-ngl", "--gpu-layers", "--n-gpu-layers", "-ngld", "--gpu-layers-draft"), _CPU
    ),
    Else(("-dev", "--device", "-devd", "-sm", "--split-mode", "-ts", "--tensor-split"), _CPU),
    Else(("-mg", "--main-gpu", "-nkvo", "--no-kv-offload", "-kvo", "--kv-offload"), _CPU),
    Else(("-ot", "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe"), _CPU),
    Else(("--op-offload", "--no-op-offload", "-fit", "--fit", "--list-devices"), _CPU),
    Else(("-mu", "--model-url"), "is not offered here: fetch the file and give its path to -m, or "
         "name it in the catalogue"),
    Else(("-hff", "--hf-file"), "is not offered here: -hf OWNER/NAME:QUANT says which file"),
    Else(("-hft", "--hf-token"), "is a variable of the environment here: HF_TOKEN"),
    Else(("--offline",), "is a variable of the environment here: HF_HUB_OFFLINE=1"),
    Else(("-cl", "--cache-list"), "is a command here: spec-cpu models list"),
    Else(
        ("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled"),
        "is not offered here: llama.cpp's llama-export-lora makes one GGUF of model and adapter",
    ),
    Else(("--override-kv", "--rope-scaling", "--rope-scale", "--rope-freq-base"), _FILE_SAYS),
    Else(("--rope-freq-scale", "--yarn-orig-ctx", "--yarn-ext-factor"), _FILE_SAYS),
    Else(("--yarn-attn-factor", "--yarn-beta-slow", "--yarn-beta-fast"), _FILE_SAYS),
    Else(("-mm", "--mmproj", "--no-mmproj", "--image", "--audio", "--video"), _TEXT),
    Else(("--samplers", "--sampler-seq", "--sampling-seq"), "is not offered here: the order is "
         "llama.cpp's own: penalties, --top-k, --top-p, --min-p, --temp"),
    Else(("--top-nsigma", "--top-n-sigma", "--typical", "--typical-p"), _SAMPLER),
    Else(("--xtc-probability", "--xtc-threshold", "--dynatemp-range", "--dynatemp-exp"), _SAMPLER),
    Else(("--mirostat", "--mirostat-lr", "--mirostat-ent", "--dry-multiplier"), _SAMPLER),
    Else(("--dry-base", "--dry-allowed-length", "--dry-penalty-last-n"), _SAMPLER),
    Else(("--dry-sequence-breaker", "--adaptive-target", "--adaptive-decay"), _SAMPLER),
    Else(("--grammar", "--grammar-file", "-j", "--json-schema", "-jf"), _FORM),
    Else(
        ("--json-schema-file", "--reasoning-format", "-rea", "--reasoning", "--reasoning-budget"),
        _FORM,
    ),
    Else(("--spec-type", "--spec-default"), "is not needed here: --draft says what guesses ahead"),
    Else(("--spec-draft-n-min", "--draft-min", "--draft-n-min", "--spec-draft-p-min"), _SPEC),
    Else(("--draft-p-min", "--spec-draft-p-split", "--draft-p-split"), _SPEC),
    Else(("--spec-ngram-mod-n-match", "--spec-ngram-simple-size-n"), _SPEC),
    Else(
        ("-lcs", "--lookup-cache-static", "-lcd", "--lookup-cache-dynamic"),
        "is not offered here: --lookup takes a text to guess from, --memory keeps earlier ones",
    ),
    Else(("--no-display-prompt", "--display-prompt", "--simple-io", "-sp", "--special"), _SHOW),
    Else(("--perf", "--no-perf", "--show-timings", "--no-show-timings", "--verbose-prompt"), _SHOW),
    Else(("-lv", "--verbosity", "--log-file", "--log-prefix", "--log-timestamps"), _LOG),
    Else(("--log-colors", "--log-jsonl", "-ptc", "--print-token-count"), _LOG),
    Else(("--warmup", "--no-warmup", "--check-tensors"), "is not needed here: nothing is warmed "
         "up, and damaged files are refused as they are loaded"),
    Else(("-np", "--parallel", "--port", "--host", "--api-key", "--api-key-file"), _SERVER),
    Else(("-cram", "--cache-ram"), _SERVER),
)  # fmt: skip

POINTERS = {name: row.note for row in ELSE for name in row.names}


def pointer(name: str) -> str:
    """What to say of a flag of llama.cpp's that there is none of here."""
    return f"llama.cpp's {name} {POINTERS[name]}"


def aliases(ours: str) -> list[str]:
    """What llama.cpp calls the option that is called `ours` here, apart from that."""
    return [name for row in SAME if row.ours == ours for name in row.names if name != ours]


def table() -> str:
    """The table of `docs/from-llama-cli.md`, in Markdown."""
    rows = ["| llama.cpp | spec-cpu | |", "|---|---|---|"]
    rows += [_row(row.names, f"`{row.ours}`", row.note) for row in SAME]
    notes: dict[str, list[str]] = {}
    for other in ELSE:
        notes.setdefault(other.note, []).extend(other.names)
    rows += [_row(names, "", note) for note, names in notes.items()]
    return "\n".join(rows) + "\n"


def _row(names: tuple[str, ...] | list[str], ours: str, note: str) -> str:
    return f"| {', '.join(f'`{name}`' for name in names)} | {ours} | {note} |"


if __name__ == "__main__":
    print(table(), end="")
