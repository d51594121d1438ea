"""A byte-level BPE vocabulary of a few hundred tokens, for generated models: control tokens, the
256 bytes, and merges learnt from a text (Sennrich et al., arXiv 1508.07909).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass
class Vocabulary:
    tokens: list[str]  # in GPT-2's alphabet of printable characters for bytes
    is_control: list[bool]
    merges: list[str]  # "left right", most important first


def byte_alphabet() -> list[str]:
    """The character GPT-2 writes for each byte: itself where it is printable, else the next one
    from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def learn_vocabulary(text: str, size: int) -> Vocabulary:
    """`size` tokens in all. Merges the most frequent pair again and again; ties go to the pair that
    sorts first, so that the same text gives the same vocabulary. ValueError where the text has too
    few pairs."""
    alphabet = byte_alphabet()
    words = Counter(re.findall(r" ?[A-Za-z]+| ?\d| ?[^\sA-Za-z\d]+|\s+", text))
    spelled = {word: [alphabet[byte] for byte in word.encode()] for word in words}
    tokens, merges = CONTROL_TOKENS + alphabet, []
    while len(tokens) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in zip(spelled[word], spelled[word][1:]):
                pairs[pair] += count
        if not pairs:
            raise ValueError(f"the text yields {len(tokens)} tokens; {size} were asked for")
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        for word, parts in spelled.items():
            at = 0
            while at + 1 < len(parts):
                if parts[at] == left and parts[at + 1] == right:
                    parts[at : at + 2] = [left + right]
                at += 1
        merges.append(f"{left} {right}")
        tokens.append(left + right)
    controls = [index < len(CONTROL_TOKENS) for index in range(size)]
    return Vocabulary(tokens, controls, merges)
