"""The tokenizer and chat template of a GGUF file, run by the `tokenizers` and `jinja2` packages:
what prompts of the goldens are encoded with, independent of common/model/tokenizer.
"""

from __future__ import annotations

import gguf
import jinja2
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

_CONTROL, _USER_DEFINED = 3, 4  # tokenizer.ggml.token_type


class GgufTokenizer:
    """Byte-level BPE with the pre-tokenisers `gpt2` and `smollm` (which splits digits first).
    ValueError for others."""

    def __init__(self, path: str):
        reader = gguf.GGUFReader(path)

        def get(key: str):
            field = reader.get_field(f"tokenizer.{key}")
            return None if field is None else field.contents()

        if get("ggml.model") != "gpt2" or get("ggml.pre") not in ("gpt2", "smollm"):
            raise ValueError(
                f"tokenizer {get('ggml.model')}, pre-tokeniser {get('ggml.pre')}: not known here"
            )
        texts, kinds = get("ggml.tokens"), get("ggml.token_type")
        merges = [tuple(merge.split(" ", 1)) for merge in get("ggml.merges")]
        vocabulary = {text: token for token, text in enumerate(texts)}
        self.tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        digits = (
            [pre_tokenizers.Digits(individual_digits=True)] if get("ggml.pre") == "smollm" else []
        )
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, byte_level])
        self.tokenizer.decoder = decoders.ByteLevel()
        self.tokenizer.add_special_tokens(
            [text for text, kind in zip(texts, kinds) if kind == _CONTROL]
        )
        self.tokenizer.add_tokens(
            [text for text, kind in zip(texts, kinds) if kind == _USER_DEFINED]
        )
        self.eos = get("ggml.eos_token_id")
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(get("chat_template"))

    def encode(self, text: str) -> list[int]:
        """Token ids; control tokens in the text count as such. No BOS is added."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=False)

    def chat(self, *messages: tuple[str, str]) -> list[int]:
        """Token ids of a conversation of (role, content) pairs, ready for the assistant's next
        turn."""
        rows = [{"role": role, "content": content} for role, content in messages]
        return self.encode(self._template.render(messages=rows, add_generation_prompt=True))
