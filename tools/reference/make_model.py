"""Writes small generated llama models as GGUF files, each with the float32 reference's logits.

    python tools/reference/make_model.py FOLDER [NAME ...] [--list]

For every variant of VARIANTS (or those named): FOLDER/NAME.gguf and FOLDER/NAME.golden with

    tokens   i32 [300]              a fixed random sequence, longer than a split of 256 tokens
    logits   f32 [300, vocab_size]  the reference's, teacher-forced
    greedy   i32 [16]               its greedy continuation

The weights are random but sized so that activations, attention scores and logits spread as in a
trained model. The tokenizer and the chat template are real: a server can serve these files. The
same versions of numpy and gguf write the same bytes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from blocks import draw_weights
from gguf import GGMLQuantizationType as Q
from golden_file import write_golden
from reference_model import ReferenceModel
from small_vocabulary import CHAT_TEMPLATE, Vocabulary, learn_vocabulary

_TEXT = Path(__file__).parents[2] / "tests" / "golden" / "smollm2" / "text.txt"
_LENGTH, _CONTINUATION = 300, 16


@dataclass(frozen=True)
class Variant:
    name: str
    weights: Q  # of every matrix in the layers
    embedding: Q  # of the embedding and, untied, of the output matrix
    tied: bool
    rope: str  # none, linear, llama3
    query_heads: int
    kv_heads: int
    head_dim: int
    width: int = 256
    ffn_width: int = 256
    layers: int = 2
    vocab_size: int = 512
    pre: str = "gpt2"  # pre-tokeniser
    rope_dims: int | None = None  # head_dim where None


# Every type as layer weights and as embedding; tied and untied, the three RoPE scalings, 1, 4 and 8
# query heads a KV head, and heads of 64 and 128, each pair of these four at least once. Widths,
# vocabularies and head counts that are no powers of two among them.
VARIANTS = [
    Variant("f32", Q.F32, Q.F32, True, "none", 4, 4, 64),
    Variant("f16", Q.F16, Q.F16, False, "linear", 2, 2, 128, vocab_size=517),
    Variant("bf16", Q.BF16, Q.BF16, True, "llama3", 4, 1, 64, width=320, ffn_width=352),
    Variant("q8_0", Q.Q8_0, Q.Q8_0, False, "none", 8, 1, 128, pre="smollm"),
    Variant("q4_0", Q.Q4_0, Q.Q4_0, True, "linear", 8, 2, 64, ffn_width=608, vocab_size=509),
    Variant("q4_1", Q.Q4_1, Q.Q4_1, False, "llama3", 4, 4, 128, width=512, pre="llama-bpe"),
    Variant("q5_0", Q.Q5_0, Q.Q5_0, True, "none", 4, 1, 128, width=288, ffn_width=416),
    Variant("q5_1", Q.Q5_1, Q.Q5_1, False, "linear", 8, 1, 64, width=320, vocab_size=641),
    Variant("q4_k", Q.Q4_K, Q.Q4_K, True, "llama3", 8, 1, 128, ffn_width=768, pre="qwen2"),
    Variant("q5_k", Q.Q5_K, Q.Q5_K, False, "none", 8, 2, 64, width=512, ffn_width=512),
    Variant("q6_k", Q.Q6_K, Q.Q6_K, True, "linear", 4, 1, 128, ffn_width=1024),
    # Mixtures as in files people download: few bits in the layers, more in the embedding.
    Variant("q4_1_q8_0", Q.Q4_1, Q.Q8_0, True, "none", 6, 6, 64, width=384, layers=3),
    Variant("q4_k_q6_k", Q.Q4_K, Q.Q6_K, False, "llama3", 8, 8, 64, width=512, ffn_width=768),
    Variant("q8_0_f16", Q.Q8_0, Q.F16, False, "llama3", 16, 2, 64, layers=4, vocab_size=1000),
    # Rotates only half of each head, which no file above does.
    Variant("part_rope", Q.Q8_0, Q.BF16, True, "linear", 8, 1, 64, rope_dims=32),
]  # fmt: skip


def llama3_factors(variant: Variant, base: float) -> np.ndarray:
    """Llama 3.1's rope_freqs.weight (factor 8, low 1, high 4) for an original context of 256: short
    waves stay, long ones are stretched by 8, those between are blended."""
    dims = variant.rope_dims or variant.head_dim
    original, factor, low, high = 256, 8.0, 1.0, 4.0
    wavelengths = 2 * np.pi * base ** (np.arange(dims // 2) * 2.0 / dims)
    blend = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    return (1 / ((1 - blend) / factor + blend)).astype(np.float32)


def _write_metadata(
    writer: gguf.GGUFWriter, variant: Variant, vocabulary: Vocabulary, base: float
) -> None:
    writer.add_name(f"generated {variant.name}")
    writer.add_vocab_size(variant.vocab_size)
    writer.add_context_length(4096)
    writer.add_embedding_length(variant.width)
    writer.add_block_count(variant.layers)
    writer.add_feed_forward_length(variant.ffn_width)
    writer.add_head_count(variant.query_heads)
    writer.add_head_count_kv(variant.kv_heads)
    writer.add_key_length(variant.head_dim)
    writer.add_value_length(variant.head_dim)
    writer.add_rope_dimension_count(variant.rope_dims or variant.head_dim)
    writer.add_rope_freq_base(base)
    if variant.rope == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(variant.pre)
    writer.add_token_list(vocabulary.tokens)
    kinds = [
        gguf.TokenType.CONTROL if control else gguf.TokenType.NORMAL
        for control in vocabulary.is_control
    ]
    writer.add_token_types(kinds)
    writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _write_tensors(writer: gguf.GGUFWriter, variant: Variant, base: float) -> None:
    rng = np.random.default_rng([5, *variant.name.encode()])

    def matrix(name: str, qtype: Q, rows: int, columns: int, gain: float = 1.0) -> None:
        # Unit inputs give outputs of deviation `gain`.
        data = draw_weights(rng, qtype, rows, columns, gain / np.sqrt(columns))
        writer.add_tensor(f"{name}.weight", data, raw_dtype=qtype)

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", rng.uniform(0.7, 1.3, variant.width).astype(np.float32))

    width, kv_width = variant.width, variant.kv_heads * variant.head_dim
    query_width = variant.query_heads * variant.head_dim
    matrix("token_embd", variant.embedding, variant.vocab_size, width, 3.0)
    norm("output_norm")
    if not variant.tied:
        matrix("output", variant.embedding, variant.vocab_size, width, 3.0)
    if variant.rope == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(variant, base))
    for layer in range(variant.layers):
        prefix = f"blk.{layer}."
        norm(prefix + "attn_norm")
        matrix(prefix + "attn_q", variant.weights, query_width, width, 1.5)
        matrix(prefix + "attn_k", variant.weights, kv_width, width, 1.5)
        matrix(prefix + "attn_v", variant.weights, kv_width, width)
        matrix(prefix + "attn_output", variant.weights, width, query_width)
        norm(prefix + "ffn_norm")
        matrix(prefix + "ffn_gate", variant.weights, variant.ffn_width, width, 1.5)
        matrix(prefix + "ffn_up", variant.weights, variant.ffn_width, width)
        matrix(prefix + "ffn_down", variant.weights, width, variant.ffn_width)


def write_model(path: Path, variant: Variant, vocabulary: Vocabulary) -> None:
    base = 10000.0 if variant.rope != "llama3" else 500000.0
    writer = gguf.GGUFWriter(path, "llama")
    _write_metadata(writer, variant, vocabulary, base)
    _write_tensors(writer, variant, base)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_golden_of(path: Path, model_path: Path, seed: int) -> None:
    model = ReferenceModel(str(model_path))
    tokens = (
        np.random.default_rng(seed).integers(0, model.config.vocab_size, _LENGTH).astype(np.int32)
    )
    cache = model.new_cache()
    logits = model.forward(tokens, cache)
    greedy = []
    last = logits[-1]
    for _ in range(_CONTINUATION):
        greedy.append(int(np.argmax(last)))
        last = model.forward(greedy[-1:], cache)[-1]
    arrays = {
        "tokens": tokens,
        "logits": logits.astype(np.float32),
        "greedy": np.array(greedy, np.int32),
    }
    write_golden(path, arrays)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="variants to write; all where none is named"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the variants' names and write nothing"
    )
    arguments = parser.parse_args()
    if arguments.list:
        print(*(variant.name for variant in VARIANTS), sep="\n")
        return
    unknown = set(arguments.names) - {variant.name for variant in VARIANTS}
    if unknown:
        parser.error(f"no variant {', '.join(sorted(unknown))}; --list names them")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    text = _TEXT.read_text(encoding="utf-8")
    vocabularies: dict[int, Vocabulary] = {}
    for seed, variant in enumerate(VARIANTS):
        if arguments.names and variant.name not in arguments.names:
            continue
        if variant.vocab_size not in vocabularies:
            vocabularies[variant.vocab_size] = learn_vocabulary(text, variant.vocab_size)
        path = arguments.folder / f"{variant.name}.gguf"
        write_model(path, variant, vocabularies[variant.vocab_size])
        write_golden_of(path.with_suffix(".golden"), path, seed)
        print(f"{path}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
