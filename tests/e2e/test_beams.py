"""Beam search on the real model: equal to an independent search whose step scores are the server's own log-probabilities, asked for one
token at a time, and the same bits beside other requests and with a warm cache."""

import itertools

import grpc
import numpy as np
import pytest

from conftest import Completion, error_details, wait_until
from octavo.v1 import admin_service_pb2, generation_service_pb2 as generation
from test_commands import octavo

ALWAYS, HEURISTIC, NEVER = (generation.EARLY_STOPPING_ALWAYS, generation.EARLY_STOPPING_HEURISTIC, generation.EARLY_STOPPING_NEVER)
SALTS = itertools.count()
STORY = "Once upon a time there was a small dragon who"
MAX_ALTERNATIVES = 20  # a client may ask for


def beams(server, width, text=STORY, **fields):
    fields.setdefault("cache_salt", f"beams{next(SALTS)}")
    return Completion(server.generate(text, beam_width=width, **fields))


def facts(answer):
    return [(hypothesis.token_ids, hypothesis.last.score, hypothesis.text, hypothesis.last.finish_reason)
            for hypothesis in answer.sequences]


def tokenize(server, text):
    return list(server.generation.Tokenize(generation.TokenizeRequest(text=text)).token_ids)


def check_at_rest(server):
    wait_until(lambda: server.held_blocks() == 0, "all blocks to come back")
    assert not server.admin.CheckInvariants(admin_service_pb2.CheckInvariantsRequest()).violations


class Scores:
    """log p(next token | prompt, output), the most likely ones, as the server gives them for token ids. Asked for once."""

    def __init__(self, server, prompt):
        self.server = server
        self.prompt = prompt
        self.known = {}

    def after(self, output):
        if output not in self.known:
            answer = Completion(self.server.generate(ids=[*self.prompt, *output], max_tokens=1, cache_salt="scores",
                                                     sampling={"logprobs": MAX_ALTERNATIVES}))
            (entry,) = answer.logprobs
            self.known[output] = [(top.token_id, np.float64(np.float32(top.logprob))) for top in entry.top]
        return self.known[output]


def search(scores, width, stops, max_tokens, penalty=1.0, early_stopping=HEURISTIC):
    """Hugging Face's `_beam_search` (transformers 4.50, generation/utils.py), for one prompt: all hypotheses, best first.

    Each step keeps max(2, 1 + stop tokens) * width candidates. Those that end count if they are among the first `width`.
    """
    kept = max(2, 1 + len(stops)) * width
    assert kept <= MAX_ALTERNATIVES, "each beam's own alternatives must be enough"
    running = [((), np.float64(0))]
    finished = []
    for length in range(1, max_tokens + 1):
        candidates = [(-(total + logprob), parent, token, output + (token,))
                      for parent, (output, total) in enumerate(running) for token, logprob in scores.after(output)]
        candidates = sorted(candidates)[:kept]
        ends = [output[-1] in stops or length == max_tokens for _, _, _, output in candidates]
        finished += [(-minus_sum / np.float64(length) ** np.float64(np.float32(penalty)), output)
                     for (minus_sum, _, _, output), end in list(zip(candidates, ends))[:width] if end]
        finished = sorted(finished, key=lambda it: -it[0])[:width]  # stable: the older one of two equal ones
        running = [(output, -minus_sum) for (minus_sum, _, _, output), end in zip(candidates, ends) if not end][:width]
        if not running:
            break
        if len(finished) == width:
            reachable = max_tokens if early_stopping == NEVER and penalty > 0 else length
            best = running[0][1] / np.float64(reachable) ** np.float64(np.float32(penalty))
            if early_stopping == ALWAYS or best <= finished[-1][0]:
                break
    return finished


@pytest.fixture(scope="module")
def story(server):
    return Scores(server, tokenize(server, STORY))


@pytest.mark.parametrize("early_stopping", [HEURISTIC, ALWAYS, NEVER])
@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.5, -1.0])
@pytest.mark.parametrize("width", [2, 4])
def test_beams_are_those_of_an_independent_search(server, story, width, penalty, early_stopping):
    stops = tokenize(server, ".") + tokenize(server, ",")  # frequent, so that hypotheses end at different lengths
    assert len(stops) == 2
    expected = search(story, width, set(stops), 16, penalty, early_stopping)
    answer = beams(server, width, n=width, max_tokens=16, length_penalty=penalty, early_stopping=early_stopping,
                   sampling={"ignore_eos": True, "stop_token_ids": stops})
    assert [hypothesis.token_ids for hypothesis in answer.sequences] == [list(output) for _, output in expected]
    assert [hypothesis.last.score for hypothesis in answer.sequences] == [np.float32(score) for score, _ in expected]
    for hypothesis in answer.sequences:
        stopped = hypothesis.token_ids[-1] in stops
        assert hypothesis.last.finish_reason == (generation.FINISH_REASON_STOP_TOKEN if stopped else generation.FINISH_REASON_MAX_TOKENS)
        assert hypothesis.last.matched_token_id == (hypothesis.token_ids[-1] if stopped else 0)


def test_the_variants_of_early_stopping_and_length_penalty_differ(server, story):
    stops = set(tokenize(server, ".") + tokenize(server, ","))
    found = {tuple(output for _, output in search(story, 4, stops, 16, penalty, early_stopping))
             for penalty in (1.0, 0.0, 2.5, -1.0) for early_stopping in (HEURISTIC, ALWAYS, NEVER)}
    assert len(found) > 2, "or the test above shows little"


@pytest.mark.parametrize("length", [15, 16, 17])
def test_wherever_the_prompt_ends_in_a_block(server, length):
    prompt = [1000 + 37 * i % 4000 for i in range(length)]
    expected = search(Scores(server, prompt), 6, set(), 6)
    answer = Completion(server.generate(ids=prompt, beam_width=6, n=6, max_tokens=6, cache_salt=f"beams{next(SALTS)}",
                                        sampling={"ignore_eos": True}))
    assert [hypothesis.token_ids for hypothesis in answer.sequences] == [list(output) for _, output in expected]


def test_one_hypothesis_is_the_best_of_all_and_a_chat_ends_by_its_end_token(server):
    chat = [("user", "What is the capital of France?")]
    best, *others = facts(Completion(server.generate(chat=chat, beam_width=4, n=4, max_tokens=40)))
    assert facts(Completion(server.generate(chat=chat, beam_width=4, max_tokens=40))) == [best]
    scores = [score for _, score, _, _ in [best, *others]]
    assert scores == sorted(scores, reverse=True)
    assert best[3] == generation.FINISH_REASON_STOP_TOKEN
    assert "Paris" in best[2]


def test_other_requests_and_a_warm_cache_change_no_bit(server):
    def ask():
        return facts(beams(server, 4, n=4, max_tokens=24, length_penalty=0.5, cache_salt="warm"))

    cold = ask()
    assert ask() == cold
    others = [server.generate(f"{i} {STORY}", n=1 + i, max_tokens=400, cache_salt="others",
                              sampling={"temperature": 1, "seed": i, "ignore_eos": True}) for i in range(3)]
    others.append(server.generate(STORY, beam_width=3, max_tokens=200, cache_salt="warm", sampling={"ignore_eos": True}))
    for call in others:
        next(iter(call))
    assert ask() == cold
    for call in others:
        call.cancel()
    check_at_rest(server)


def test_progress_counts_as_they_run_and_the_text_comes_at_the_end(server):
    before = server.metrics()
    answer = beams(server, 3, n=2, max_tokens=12, sampling={"ignore_eos": True})
    assert answer.progress == list(range(1, 12))
    texts = [bool(chunk.text) for chunk in answer.chunks]
    assert texts == sorted(texts), "nothing but text comes after the first of it"
    usage = answer.last.usage
    assert usage.completion_tokens == sum(len(hypothesis.token_ids) for hypothesis in answer.sequences) == 24
    assert usage.prompt_tokens == len(tokenize(server, STORY))
    trailers = dict(answer.call.trailing_metadata())
    assert {"octavo-queue-ms", "octavo-prefill-ms", "octavo-decode-ms"} <= trailers.keys()
    assert float(trailers["octavo-decode-ms"]) > 0, "it is not all prefill"
    after = server.metrics()

    def grown(name):
        (key,) = [key for key in after if key.startswith(name + "{")]
        return after[key] - before.get(key, 0)

    assert grown("octavo_generation_tokens_total") == 24
    assert grown("octavo_prompt_tokens_total") == usage.prompt_tokens
    assert grown("octavo_requests_admitted_total") == 1


def test_beams_name_the_same_blocks_and_give_them_back_when_cancelled(server):
    call = server.generate(ids=[1000 + 37 * i % 4000 for i in range(53)], beam_width=4, max_tokens=500, request_id="beams",
                           cache_salt="shares", sampling={"ignore_eos": True})
    chunks = iter(call)
    while next(chunks).usage.completion_tokens < 4:
        pass
    state = server.admin.GetRequest(admin_service_pb2.GetRequestRequest(request_id="beams"))
    assert len(state.request.sequences) == 4
    held = server.held_blocks()
    call.cancel()
    # 53 tokens are 4 blocks; a few positions later each beam has at most its own copy of the last, another one, and one copied from.
    assert held <= 3 + 4 * 3
    check_at_rest(server)


@pytest.mark.parametrize("field, value", [("seed", 1), ("temperature", 0.7), ("top_k", 5), ("top_p", 0.5), ("min_p", 0.1),
                                          ("repetition_penalty", 1.1), ("presence_penalty", 0.5), ("frequency_penalty", 0.5),
                                          ("logit_bias", {5: 1.0}), ("min_tokens", 2), ("logprobs", 0)])
def test_a_field_that_means_nothing_beside_beams_is_refused_by_its_name(server, field, value):
    error = beams(server, 2, max_tokens=4, sampling={field: value}).error
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    (bad,) = error_details(error, "BadRequest")
    assert [violation.field for violation in bad.field_violations] == [f"sampling.{field}"]
    assert "beam" in error.details()


def test_the_command_shows_the_best_hypothesis(server):
    best, second = facts(Completion(server.generate(STORY, beam_width=4, n=2, max_tokens=16)))
    run = octavo("generate", "--server", server.target, "--raw", "--beam_width", "4", "--max_tokens", "16", STORY)
    assert run.returncode == 0, run
    assert run.stdout == best[2] + "\n"
    both = octavo("generate", "--server", server.target, "--raw", "--beam_width", "4", "--n", "2", "--max_tokens", "16", STORY)
    assert both.returncode == 0, both
    assert best[2] in both.stdout and second[2] in both.stdout
    assert f"hypothesis 0, score {best[1]:.4f}" in both.stdout
