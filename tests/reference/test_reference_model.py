"""The reference against what is known of it from elsewhere, and against itself run another way."""

import numpy as np
import pytest
from conftest import ROOT
from gguf_tokenizer import GgufTokenizer
from golden_file import read_golden
from make_model import VARIANTS, write_model
from reference_model import ReferenceModel, log_softmax
from small_vocabulary import learn_vocabulary


@pytest.fixture(scope="module")
def smollm2(smollm2_path):
    return ReferenceModel(smollm2_path)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Writes a variant and returns its path."""
    text = (ROOT / "tests/golden/smollm2/text.txt").read_text(encoding="utf-8")

    def write(variant):
        path = tmp_path_factory.mktemp("models") / f"{variant.name}.gguf"
        write_model(path, variant, learn_vocabulary(text, variant.vocab_size))
        return str(path)

    return write


def variant_named(name):
    return next(variant for variant in VARIANTS if variant.name == name)


def test_smollm2_gives_the_published_logits(smollm2, smollm2_path):
    prompt = GgufTokenizer(smollm2_path).chat(("user", "What is the capital of France?"))
    assert len(prompt) == 37 and prompt[:5] == [1, 9690, 198, 2683, 359]
    logits = smollm2.forward(prompt, smollm2.new_cache())[-1]
    best = np.argsort(-logits)[:5]
    assert best.tolist() == [504, 60, 15319, 2219, 7026]
    # Found by two other implementations of the same arithmetic.
    np.testing.assert_allclose(
        logits[best], [25.3254, 25.2433, 24.9424, 24.4017, 24.3146], rtol=0, atol=1e-3
    )
    assert smollm2.greedy(prompt, 8) == [504, 3575, 282, 4649, 314, 7042, 30, 2]


def test_committed_goldens_are_what_the_reference_computes(smollm2):
    golden = read_golden(ROOT / "tests/golden/smollm2/capital.golden")
    logprobs = log_softmax(smollm2.forward(golden["tokens"], smollm2.new_cache()))
    expected = np.take_along_axis(logprobs, golden["top_tokens"], axis=1)
    np.testing.assert_allclose(golden["top_logprobs"], expected, rtol=0, atol=1e-3)
    following = logprobs[np.arange(len(logprobs) - 1), golden["tokens"][1:]]
    np.testing.assert_allclose(golden["next_logprobs"], following, rtol=0, atol=1e-3)
    # The text after the prompt is the greedy continuation.
    start = int(golden["prompt_length"][0])
    assert (golden["top_tokens"][start - 1 : -1, 0] == golden["tokens"][start:]).all()


@pytest.mark.parametrize("name", ["f16", "bf16", "q4_k", "part_rope"])
def test_the_cache_changes_nothing(build, name):
    model = ReferenceModel(build(variant_named(name)), np.float64)
    tokens = np.random.default_rng(1).integers(0, model.config.vocab_size, 40)
    whole = model.forward(tokens, model.new_cache())
    cache = model.new_cache()
    parts = [model.forward(part, cache) for part in np.split(tokens, [1, 2, 17, 39])]
    assert cache.length == 40
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-9)


def test_attention_is_the_textbook_sum(build):
    """One layer's attention by loops over heads and positions, pairs turned as complex numbers."""
    model = ReferenceModel(build(variant_named("bf16")), np.float64)
    config, weights, count = model.config, model.weights, 9
    x = np.random.default_rng(2).standard_normal((count, config.width))
    found = model._attention(x, 0, model.new_cache())

    def rows(name, row, head):
        part = weights[f"blk.0.{name}.weight"][
            head * config.head_dim : (head + 1) * config.head_dim
        ]
        return part @ x[row]

    def turn(vector, position):
        factors = weights["rope_freqs.weight"]
        for pair in range(config.rope_dims // 2):
            angle = position * config.rope_base ** (-2 * pair / config.rope_dims) / factors[pair]
            turned = complex(vector[2 * pair], vector[2 * pair + 1]) * np.exp(1j * angle)
            vector[2 * pair], vector[2 * pair + 1] = turned.real, turned.imag
        return vector

    for position in range(count):
        heads = []
        for head in range(config.query_heads):
            kv_head = head * config.kv_heads // config.query_heads
            query = turn(rows("attn_q", position, head), position)
            keys = [turn(rows("attn_k", p, kv_head), p) for p in range(position + 1)]
            scores = np.array([query @ key for key in keys]) / config.head_dim**0.5
            shares = np.exp(scores) / np.exp(scores).sum()
            heads.append(sum(s * rows("attn_v", p, kv_head) for p, s in enumerate(shares)))
        expected = weights["blk.0.attn_output.weight"] @ np.concatenate(heads)
        np.testing.assert_allclose(found[position], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["f16", "bf16", "q4_k_q6_k"])
def test_a_wrong_rope_scaling_shows_in_the_logits(build, name):
    model = ReferenceModel(build(variant_named(name)))
    tokens = np.random.default_rng(3).integers(0, model.config.vocab_size, 100)
    right = model.forward(tokens, model.new_cache())
    dims = model.config.rope_dims
    model.frequencies = model.config.rope_base ** (-2.0 * np.arange(dims // 2) / dims)  # unscaled
    wrong = model.forward(tokens, model.new_cache())
    assert np.abs(right - wrong).max() > 0.5
