"""The sampler against an independent one in numpy, on 10^4 random (logits, parameters), 8 draws each.

Processed logits are computed in float32 as kernels/sampler.h writes them, so that the ranking is the same; weights, sums
and cuts in float64. A draw whose uniform number lies within 1e-5 of an edge between two tokens, or a cut that falls
within 1e-6 of its threshold, may go either way in float32; those are accepted either way, counted and bounded.
"""

import json
import os
import pathlib
import subprocess

import numpy as np

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PROBE = pathlib.Path(os.environ.get("OCTAVO_BUILD_DIR", REPOSITORY / "build")) / "tests" / "sampler_probe"
QUESTIONS = 10_000
DRAWS = 8
EDGE = 1e-5
CUT = 1e-6


def philox_uniform(seed, position, draw=0):
    """Philox4x32-10 (Salmon et al., SC 2011), the upper 23 bits as a number in (0, 1)."""
    mask = 0xFFFFFFFF
    counter = [position & mask, position >> 32, draw // 4, 0]
    key = [seed & mask, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(second >> 32) ^ counter[1] ^ key[0], second & mask, (first >> 32) ^ counter[3] ^ key[1], first & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return ((counter[draw % 4] >> 9) + 0.5) / 2**23


def random_question(rng, index):
    vocabulary = 49152 if index % 500 == 0 else int(rng.choice([2, 5, 17, 64, 200, 700, 1024, 1500]))
    logits = (rng.standard_normal(vocabulary) * 2.0 ** rng.uniform(-3, 5)).astype(np.float32)
    if rng.random() < 0.3:
        logits = np.round(logits * 4) / 4  # ties
    few = min(vocabulary - 1, 12)
    penalised = rng.random() < 0.5
    return {
        "logits": [float(x) for x in logits],
        "positions": [int(p) for p in rng.integers(0, 2**20, DRAWS)],
        "seed": int(rng.integers(0, 2**63)),
        "temperature": float(np.float32(0 if rng.random() < 0.15 else 2.0 ** rng.uniform(-3, 3))),
        "top_k": int(rng.integers(1, vocabulary + 3)) if rng.random() < 0.4 else 0,
        "top_p": float(np.float32(rng.uniform(0.01, 1))) if rng.random() < 0.5 else 1.0,
        "min_p": float(np.float32(rng.uniform(0, 1) ** 3)) if rng.random() < 0.3 else 0.0,
        "repetition": float(np.float32(2.0 ** rng.uniform(-1, 1))) if penalised else 1.0,
        "presence": float(np.float32(rng.uniform(-2, 2))) if penalised else 0.0,
        "frequency": float(np.float32(rng.uniform(-2, 2))) if penalised else 0.0,
        "bias": [[int(t), float(np.float32(rng.uniform(-20, 20)))]
                 for t in rng.choice(vocabulary, rng.integers(0, few + 1), replace=False)],
        "history": [[int(t), int(rng.integers(0, 4)), int(rng.integers(0, 3))]
                    for t in rng.choice(vocabulary, rng.integers(0, few + 1), replace=False)],
        "masked": [int(t) for t in rng.choice(vocabulary, min(few, int(rng.integers(0, 4))), replace=False)],
        "top": int(rng.integers(0, 21)),
    }


def processed_logits(question):
    z = np.array(question["logits"], dtype=np.float32)
    for token, bias in question["bias"]:
        z[token] = z[token] + np.float32(bias)
    repetition, presence = np.float32(question["repetition"]), np.float32(question["presence"])
    for token, in_output, in_prompt in question["history"]:
        if in_output + in_prompt == 0:
            continue
        z[token] = z[token] / repetition if z[token] > 0 else z[token] * repetition
        if in_output > 0:
            z[token] = np.float32(np.float64(z[token]) - in_output * question["frequency"])
            z[token] = z[token] - presence
    z[question["masked"]] = -np.inf
    return z


class Distributions:
    """The distributions that a question allows: one, or some more where a cut is too close to call."""

    def __init__(self, question, z):
        ranking = np.lexsort((np.arange(len(z)), -z))
        with np.errstate(under="ignore"):
            weights = np.exp((z.astype(np.float64) - z.max()) / np.float64(question["temperature"]))
        if question["top_k"]:
            weights[ranking[question["top_k"]:]] = 0
        self.doubtful = False
        lengths = [len(z)]
        if question["top_p"] < 1:
            total = weights.sum()
            cumulative = np.cumsum(weights[ranking]) / total
            lengths = {int(np.searchsorted(cumulative, question["top_p"] + delta)) + 1 for delta in (-CUT, 0, CUT)}
            self.doubtful |= len(lengths) > 1
        self.variants = []
        for length in sorted(lengths):
            for factor in (1 - CUT, 1, 1 + CUT):
                variant = weights.copy()
                variant[ranking[length:]] = 0
                variant[variant < question["min_p"] * factor] = 0
                if not any(np.array_equal(variant, other) for other in self.variants):
                    self.variants.append(variant)
        self.doubtful |= len(self.variants) > 1

    def accepts(self, token, uniform):
        """Whether `token` is the draw, and whether that was close to an edge."""
        close = False
        for weights in self.variants:
            edges = np.cumsum(weights) / weights.sum()
            low = edges[token - 1] if token > 0 else 0.0
            if weights[token] <= 0:
                continue
            if low <= uniform < edges[token]:
                return True, close
            if low - EDGE <= uniform < edges[token] + EDGE:
                close = True
        return close, close


def test_tokens_and_logprobs_equal_the_numpy_sampler():
    rng = np.random.default_rng(20240607)
    questions = [random_question(rng, index) for index in range(QUESTIONS)]
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    output = subprocess.run([PROBE], input=lines, capture_output=True, text=True, check=True, timeout=300).stdout
    answers = [json.loads(line) for line in output.splitlines()]
    assert len(answers) == QUESTIONS
    drawn = close_draws = doubtful_cuts = greedy = 0
    for index, (question, answer) in enumerate(zip(questions, answers)):
        raw = np.array(question["logits"], dtype=np.float64)
        logprobs = raw - raw.max() - np.log(np.exp(raw - raw.max()).sum())
        tolerance = 1e-5 + 1e-6 * (raw.max() - raw.min())
        for token, logprob in zip(answer["tokens"], answer["logprobs"]):
            assert abs(logprob - logprobs[token]) <= tolerance, index
        ranking = np.lexsort((np.arange(len(raw)), -raw))[:question["top"]]
        assert [token for token, _ in answer["top"]] == ranking.tolist(), index
        for token, logprob in answer["top"]:
            assert abs(logprob - logprobs[token]) <= tolerance, index

        z = processed_logits(question)
        if question["temperature"] == 0:
            greedy += 1
            assert answer["tokens"] == [int(np.argmax(z))] * DRAWS, index
            continue
        distributions = Distributions(question, z)
        doubtful_cuts += distributions.doubtful
        for position, token in zip(question["positions"], answer["tokens"]):
            uniform = philox_uniform(question["seed"], position)
            accepted, close = distributions.accepts(token, uniform)
            assert accepted, (index, position, token, uniform)
            close_draws += close
            drawn += 1
    print(f"{drawn} draws, {close_draws} within {EDGE} of an edge; {greedy} greedy; {doubtful_cuts} cuts too close to call")
    assert drawn > 60_000 and greedy > 1_000
    assert close_draws < drawn * 0.002
    assert doubtful_cuts < QUESTIONS * 0.01


def test_a_row_that_is_not_finite_is_refused():
    question = random_question(np.random.default_rng(1), 1)
    question["masked"] = list(range(len(question["logits"])))
    output = subprocess.run([PROBE], input=json.dumps(question) + "\n", capture_output=True, text=True, check=True,
                            timeout=60).stdout
    assert json.loads(output) == {"error": "non-finite"}
