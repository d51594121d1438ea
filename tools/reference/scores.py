"""What goldens keep of a teacher-forced run: the likeliest next tokens at each position and the
probability of the one that came.
"""

from __future__ import annotations

import numpy as np
from reference_model import ReferenceModel, log_softmax


def score(
    model: ReferenceModel, tokens: list[int] | np.ndarray, top: int = 5
) -> dict[str, np.ndarray]:
    """For tokens [n]:

    tokens         i32 [n]
    top_tokens     i32 [n, top]  the likeliest at p + 1 after position p, best first; ties: lower id
    top_logprobs   f32 [n, top]  their log-probabilities (natural, of the raw logits)
    next_logprobs  f32 [n - 1]   the log-probability of tokens[p + 1] after position p
    """
    tokens = np.asarray(tokens, np.int32)
    top_tokens = np.empty((len(tokens), top), np.int32)
    top_logprobs = np.empty((len(tokens), top), np.float32)
    next_logprobs = np.empty(len(tokens) - 1, np.float32)
    for first, logits in model.teacher_forced(tokens):
        logprobs = log_softmax(logits)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :top]
        last = first + len(logits)
        top_tokens[first:last] = best
        top_logprobs[first:last] = np.take_along_axis(logprobs, best, axis=1)
        following = tokens[first + 1 : last + 1]
        next_logprobs[first : first + len(following)] = logprobs[
            np.arange(len(following)), following
        ]
    return {
        "tokens": tokens,
        "top_tokens": top_tokens,
        "top_logprobs": top_logprobs,
        "next_logprobs": next_logprobs,
    }
