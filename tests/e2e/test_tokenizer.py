"""The tokenizer against the `tokenizers` library, both made from the default model's vocabulary and merges.

SmolLM2's own pre-tokenizer is compared as the model uses it; the others are put on the same vocabulary, so that
their patterns, NFC and the whole-word rule of Llama 3 are compared too.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import unicodedata

import gguf
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "golden"))
import tokenizer_strings  # noqa: E402

PROBE = pathlib.Path(os.environ.get("OCTAVO_BUILD_DIR", REPOSITORY / "build")) / "tests" / "tokenizer_probe"
MODEL = os.environ.get("OCTAVO_MODEL", os.path.expanduser("~/.cache/octavo/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
CONTROL = 3  # gguf's token type

# As published in the models' tokenizer.json.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

PRE_TOKENIZERS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "gpt2 with space": pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]),
    "llama-bpe": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
                                          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
    "qwen2": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
}


class Vocabulary:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        self.tokens = fields["tokenizer.ggml.tokens"].contents()
        self.merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
        types = fields["tokenizer.ggml.token_type"].contents()
        self.control = [token for token, kind in zip(self.tokens, types) if kind == CONTROL]

    def reference(self, name, parse_special):
        tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(self.tokens)}, merges=self.merges,
                                         ignore_merges=name == "llama-bpe"))
        tokenizer.pre_tokenizer = PRE_TOKENIZERS[name]
        tokenizer.decoder = decoders.ByteLevel()
        if name == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        if parse_special:
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in self.control])
        return tokenizer


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(MODEL)


@pytest.fixture(scope="module")
def strings(vocabulary):
    decoder = decoders.ByteLevel()
    words = [decoder.decode([token]) for token in vocabulary.tokens if token not in vocabulary.control]
    made = tokenizer_strings.strings(vocabulary.control, [word for word in words if "\ufffd" not in word])
    assert len(made) >= 5000
    return made


def ask(questions, arguments=()):
    """The probe's answers to `questions`, in order."""
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([PROBE, MODEL, *arguments], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(questions)
    return answers


def probe_arguments(name):
    return ["gpt2", "add_space_prefix"] if name == "gpt2 with space" else [name]


def text_for_reference(name, text):
    """The library's NFC is that of Unicode 9; where marks assigned since then make it differ, it gets NFC already."""
    normal = unicodedata.normalize("NFC", text)
    return normal if name == "qwen2" and normalizers.NFC().normalize_str(text) != normal else text


def differences(vocabulary, name, texts, parse_special):
    """(text, ours, theirs) wherever the ids differ."""
    reference_texts = [text_for_reference(name, text) for text in texts]
    assert sum(a != b for a, b in zip(texts, reference_texts)) * 50 < len(texts)
    expected = vocabulary.reference(name, parse_special).encode_batch(reference_texts, add_special_tokens=False)
    answers = ask([{"encode": text, "parse_special": parse_special} for text in texts], probe_arguments(name))
    return [(text, answer.get("ids", answer), reference.ids) for text, answer, reference in zip(texts, answers, expected)
            if answer.get("ids") != reference.ids]


@pytest.mark.parametrize("parse_special", [True, False])
@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_ids_are_those_of_the_tokenizers_library(vocabulary, strings, name, parse_special):
    different = differences(vocabulary, name, strings, parse_special)
    assert not different, f"{len(different)} of {len(strings)} differ; the first: {different[0]!r}"


@pytest.mark.parametrize("name", ["gpt2", "smollm", "llama-bpe", "qwen2"])
def test_every_character_of_unicode_14_is_cut_and_merged_alike(vocabulary, name):
    texts = tokenizer_strings.every_character()
    different = differences(vocabulary, name, texts, parse_special=False)
    assert not different, f"{len(different)} of {len(texts)} differ; the first: {different[0]!r}"


@pytest.mark.parametrize("name", ["gpt2", "smollm", "llama-bpe", "qwen2"])
def test_a_mebibyte_of_one_character_is_cut_and_merged_alike(vocabulary, name):
    different = differences(vocabulary, name, ["a" * (1 << 20), " " * (1 << 20)], parse_special=False)
    assert not different, [text[0] for text, _, _ in different]


@pytest.mark.parametrize("show_control", [True, False])
def test_decoding_gives_what_the_tokenizers_library_gives(vocabulary, strings, show_control):
    reference = vocabulary.reference("smollm", parse_special=True)
    rng = random.Random(5)
    sequences = [encoding.ids for encoding in reference.encode_batch(strings, add_special_tokens=False)]
    # Ids that no text encodes to: characters cut anywhere, bytes that belong to none.
    one_byte = [i for i, token in enumerate(vocabulary.tokens) if len(token) == 1]
    for pool in (range(len(vocabulary.tokens)), one_byte, [*one_byte, *range(17)]):
        sequences += [rng.choices(pool, k=rng.randint(1, 30)) for _ in range(1000)]
    expected = reference.decode_batch(sequences, skip_special_tokens=not show_control)
    answers = ask([{"decode": ids, "show_control": show_control} for ids in sequences])
    different = [(ids, answer["pieces"], text) for ids, answer, text in zip(sequences, answers, expected)
                 if "".join(answer["pieces"]) != text]
    assert not different, f"{len(different)} of {len(sequences)} differ; the first: {different[0]!r}"


def test_text_without_control_tokens_never_yields_one(strings):
    for text, answer in zip(strings, ask([{"encode": text} for text in strings])):
        assert min(answer["ids"], default=17) >= 17, text


def test_the_prompt_of_a_chat_has_the_ids_the_model_was_trained_on():
    text = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
    (answer,) = ask([{"encode": text, "parse_special": True, "add_bos": True}])
    assert answer["ids"] == [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198]
