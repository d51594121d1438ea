"""Writes tests/golden/smollm2: what the float32 reference makes of SmolLM2-135M-Instruct (see the
README there).

    python tools/reference/write_goldens.py MODEL.gguf tests/golden/smollm2

Continuations are drawn once and kept: token ids in golden files that are there already are scored
again as they are, so that another machine's rounding cannot change what is tested. --fresh draws
them anew.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from gguf_tokenizer import GgufTokenizer
from golden_file import read_golden, write_golden
from reference_model import ReferenceModel
from scores import score

CONTINUATION = 64

# Conversations and plain texts, by the name of their file.
CHATS = {
    "capital": [("user", "What is the capital of France?")],
    "paging": [("user", "Explain how paging works in an operating system, step by step.")],
    "python": [
        ("user", "Write a Python function that returns the n-th Fibonacci number and explain it.")
    ],
    "story": [
        ("system", "You are a storyteller."),
        ("user", "Tell me about a lighthouse keeper and a whale."),
    ],
    "sums": [
        ("user", "What is 17 + 25?"),
        ("assistant", "17 + 25 = 42."),
        ("user", "And if I take away 9 and double it?"),
    ],
    "french": [
        (
            "user",
            "Traduis en français : The library is open until eight o'clock, except on Sundays.",
        )
    ],
}
TEXTS = {
    "prose": (
        "It was a bright cold day in the harbour, and the clocks on both sides of the water were"
        " striking"
    ),
    "code": (
        "#include <vector>\n\n// Returns the sum of all elements.\n"
        "int Sum(const std::vector<int>& values) {\n"
    ),
    "list": (
        "The planets of the solar system, in order of their distance from the sun, are:\n"
        "1. Mercury\n2."
    ),
    "mixed": "Prices in 2023: apples 1.20 €/kg, 桜 tea ¥450, naïve café ☕ — total",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fresh", action="store_true", help="draw continuations anew")
    arguments = parser.parse_args()
    model, tokenizer = ReferenceModel(arguments.model), GgufTokenizer(arguments.model)

    def write(name: str, tokens: list[int] | np.ndarray, prompt_length: int) -> None:
        scores = score(model, tokens)
        path = arguments.folder / f"{name}.golden"
        write_golden(path, {"prompt_length": np.array([prompt_length], np.int32), **scores})
        perplexity = np.exp(-scores["next_logprobs"].mean(dtype=np.float64))
        continuation = len(tokens) - prompt_length
        print(f"{path}: {prompt_length} + {continuation} tokens, perplexity {perplexity:.4f}")

    prompts = {name: tokenizer.chat(*messages) for name, messages in CHATS.items()}
    prompts |= {name: tokenizer.encode(text) for name, text in TEXTS.items()}
    for name, prompt in prompts.items():
        path = arguments.folder / f"{name}.golden"
        if path.exists() and not arguments.fresh:
            tokens = read_golden(path)["tokens"]
        else:
            tokens = prompt + model.greedy(prompt, CONTINUATION)
        write(name, tokens, len(prompt))
    text = tokenizer.encode((arguments.folder / "text.txt").read_text(encoding="utf-8"))
    write("text", text, len(text))


if __name__ == "__main__":
    main()
