"""An independent Llama: numpy, float32, one file, nothing shared with the C++ it judges. Weights
are dequantised by the gguf package.

    python tools/reference/reference_model.py MODEL.gguf 1 9690 198 --greedy 8

prints the highest logits after the given token ids and their greedy continuation. Dequantising
SmolLM2-135M takes 3 s and 0.6 GB; it then decodes about 20 tokens/s on two cores.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import gguf
import numpy as np


@dataclass
class Config:
    """The sizes of a model of GGUF architecture `llama`."""

    layer_count: int
    width: int
    query_heads: int
    kv_heads: int
    head_dim: int
    rope_dims: int
    rope_base: float
    rope_linear_factor: float
    epsilon: float
    context_length: int
    vocab_size: int


@dataclass
class Cache:
    """Keys and values of every position so far, [kv_heads, positions, head_dim] a layer; keys are
    rotated already."""

    keys: list[np.ndarray]
    values: list[np.ndarray]

    @property
    def length(self) -> int:
        return self.keys[0].shape[1]


def _read_config(reader: gguf.GGUFReader) -> Config:
    def get(key: str, default=None):
        field = reader.get_field(key)
        return default if field is None else field.contents()

    if get("general.architecture") != "llama":
        raise ValueError(f"architecture {get('general.architecture')!r}; this reference runs llama")
    width, query_heads = get("llama.embedding_length"), get("llama.attention.head_count")
    head_dim = get("llama.attention.key_length", width // query_heads)
    scaling = get("llama.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ValueError(
            f"RoPE scaling {scaling!r}; this reference runs none, linear and rope_freqs.weight"
        )
    return Config(
        layer_count=get("llama.block_count"),
        width=width,
        query_heads=query_heads,
        kv_heads=get("llama.attention.head_count_kv", query_heads),
        head_dim=head_dim,
        rope_dims=get("llama.rope.dimension_count", head_dim),
        rope_base=get("llama.rope.freq_base", 10000.0),
        rope_linear_factor=get("llama.rope.scaling.factor", 1.0) if scaling == "linear" else 1.0,
        epsilon=get("llama.attention.layer_norm_rms_epsilon"),
        context_length=get("llama.context_length"),
        vocab_size=next(t for t in reader.tensors if t.name == "token_embd.weight").data.shape[0],
    )


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis, in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class ReferenceModel:
    """dtype float64 measures the rounding of the float32 reference itself."""

    def __init__(self, path: str, dtype: type = np.float32):
        reader = gguf.GGUFReader(path)
        self.config = _read_config(reader)
        self.dtype = dtype
        self.weights: dict[str, np.ndarray] = {}
        for tensor in reader.tensors:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            self.weights[tensor.name] = np.ascontiguousarray(values, dtype=dtype)
        # Pair i turns by position * base^(-2i / dims) / (linear factor * Llama 3's factor of the
        # pair).
        pairs = np.arange(self.config.rope_dims // 2, dtype=np.float64)
        self.frequencies = self.config.rope_base ** (-2.0 * pairs / self.config.rope_dims)
        self.frequencies /= self.config.rope_linear_factor
        if "rope_freqs.weight" in self.weights:
            self.frequencies /= self.weights["rope_freqs.weight"].astype(np.float64)

    def new_cache(self) -> Cache:
        config = self.config
        empty = np.zeros((config.kv_heads, 0, config.head_dim), self.dtype)
        return Cache([empty] * config.layer_count, [empty] * config.layer_count)

    def _norm(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean_square + self.dtype(self.config.epsilon)) * weight

    def _rotate(self, x: np.ndarray, first_position: int) -> np.ndarray:
        """x: [heads, tokens, head_dim]. Turns the pairs (2i, 2i + 1): GGUF's llama files are
        permuted for interleaved pairs."""
        dims = self.config.rope_dims
        positions = np.arange(first_position, first_position + x.shape[1], dtype=np.float64)
        angles = np.outer(positions, self.frequencies)  # [tokens, dims / 2]
        cos, sin = np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype)
        rotated = x.copy()
        even, odd = x[..., 0:dims:2], x[..., 1:dims:2]
        rotated[..., 0:dims:2] = even * cos - odd * sin
        rotated[..., 1:dims:2] = even * sin + odd * cos
        return rotated

    def _attention(self, x: np.ndarray, layer: int, cache: Cache) -> np.ndarray:
        """x: [tokens, width], the normed residual stream; appends its keys and values to the
        cache."""
        config, tokens, first = self.config, x.shape[0], cache.keys[layer].shape[1]

        def project(name: str, heads: int) -> np.ndarray:
            y = x @ self.weights[f"blk.{layer}.{name}.weight"].T
            return y.reshape(tokens, heads, config.head_dim).transpose(1, 0, 2)

        queries = self._rotate(project("attn_q", config.query_heads), first)
        keys = self._rotate(project("attn_k", config.kv_heads), first)
        cache.keys[layer] = np.concatenate([cache.keys[layer], keys], axis=1)
        cache.values[layer] = np.concatenate(
            [cache.values[layer], project("attn_v", config.kv_heads)], axis=1
        )
        # Query head h reads KV head h // group.
        group = config.query_heads // config.kv_heads
        queries = queries.reshape(config.kv_heads, group * tokens, config.head_dim)
        scores = (
            queries @ cache.keys[layer].transpose(0, 2, 1) / self.dtype(np.sqrt(config.head_dim))
        )
        scores = scores.reshape(config.kv_heads, group, tokens, first + tokens)
        future = np.arange(first + tokens)[None, :] > (first + np.arange(tokens))[:, None]
        scores = np.where(future, self.dtype(-np.inf), scores)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = (scores / scores.sum(axis=-1, keepdims=True)).reshape(
            config.kv_heads, group * tokens, -1
        )
        mixed = (weights @ cache.values[layer]).reshape(config.query_heads, tokens, config.head_dim)
        merged = mixed.transpose(1, 0, 2).reshape(tokens, config.query_heads * config.head_dim)
        return merged @ self.weights[f"blk.{layer}.attn_output.weight"].T

    def _feed_forward(self, x: np.ndarray, layer: int) -> np.ndarray:
        gate = x @ self.weights[f"blk.{layer}.ffn_gate.weight"].T
        up = x @ self.weights[f"blk.{layer}.ffn_up.weight"].T
        return (gate / (1 + np.exp(-gate)) * up) @ self.weights[f"blk.{layer}.ffn_down.weight"].T

    def forward(self, tokens: list[int] | np.ndarray, cache: Cache) -> np.ndarray:
        """Logits [tokens, vocab_size] after each of `tokens`, which follow what the cache holds and
        are appended to it."""
        x = self.weights["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self.config.layer_count):
            x = x + self._attention(
                self._norm(x, self.weights[f"blk.{layer}.attn_norm.weight"]), layer, cache
            )
            x = x + self._feed_forward(
                self._norm(x, self.weights[f"blk.{layer}.ffn_norm.weight"]), layer
            )
        x = self._norm(x, self.weights["output_norm.weight"])
        output = self.weights.get("output.weight", self.weights["token_embd.weight"])
        return x @ output.T

    def teacher_forced(self, tokens: list[int] | np.ndarray, chunk: int = 256):
        """Yields (first position, logits [up to chunk, vocab_size]) over the whole sequence, in
        bounded memory."""
        cache = self.new_cache()
        for first in range(0, len(tokens), chunk):
            yield first, self.forward(tokens[first : first + chunk], cache)

    def greedy(self, prompt: list[int] | np.ndarray, count: int) -> list[int]:
        """The `count` tokens after the prompt, each the most likely one (lowest id on a tie); end
        tokens are tokens like others."""
        cache = self.new_cache()
        logits = self.forward(prompt, cache)[-1]
        output: list[int] = []
        for _ in range(count):
            output.append(int(np.argmax(logits)))
            logits = self.forward(output[-1:], cache)[-1]
        return output


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("tokens", type=int, nargs="+")
    parser.add_argument("--greedy", type=int, default=8, metavar="COUNT")
    arguments = parser.parse_args()
    model = ReferenceModel(arguments.model)
    logits = model.forward(arguments.tokens, model.new_cache())[-1]
    for token in np.argsort(-logits, kind="stable")[:5]:
        print(f"{token:8d} {logits[token]:.4f}")
    print(*model.greedy(arguments.tokens, arguments.greedy))


if __name__ == "__main__":
    main()
