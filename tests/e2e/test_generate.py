"""Generation through real processes: scheduler, worker, sockets, the real model."""

import concurrent.futures

import grpc
import pytest

from conftest import Completion, Server, error_details, wait_until
from octavo.v1 import admin_service_pb2, generation_service_pb2 as generation

CAPITAL = [("user", "What is the capital of France?")]
# An independent float32 run of the same file (tools/reference) gives these tokens.
CAPITAL_IDS = [504, 3575, 282, 4649, 314, 7042, 30, 2]
STORY = "Once upon a time there was a small dragon who"


def test_the_answer_is_the_references(server):
    answer = Completion(server.generate(chat=CAPITAL, max_tokens=32, sampling={"logprobs": 2}))
    assert answer.text == "The capital of France is Paris."
    assert answer.token_ids == CAPITAL_IDS
    assert answer.last.finish_reason == generation.FINISH_REASON_STOP_TOKEN
    assert answer.last.matched_token_id == 2
    assert answer.last.usage.prompt_tokens == 37
    assert answer.last.usage.completion_tokens == 8
    assert [entry.chosen.token_id for entry in answer.logprobs] == CAPITAL_IDS
    assert all(len(entry.top) == 2 and entry.top[0] == entry.chosen for entry in answer.logprobs)


def test_metadata_names_the_request_and_trailers_give_times(server):
    call = server.generate(STORY, max_tokens=4, request_id="named-by-the-client")
    answer = Completion(call)
    assert dict(call.initial_metadata())["x-request-id"] == "named-by-the-client"
    assert answer.last.request_id == "named-by-the-client"
    trailers = dict(call.trailing_metadata())
    for key in ("octavo-queue-ms", "octavo-prefill-ms", "octavo-decode-ms"):
        assert float(trailers[key]) >= 0


def test_a_prompt_sent_again_is_cached_and_its_tokens_are_the_same(server):
    prompt = "The quick brown fox jumps over the lazy dog. " * 12
    cold = Completion(server.generate(prompt, max_tokens=24, cache_salt="again", sampling={"logprobs": 3}))
    warm = Completion(server.generate(prompt, max_tokens=24, cache_salt="again", sampling={"logprobs": 3}))
    other = Completion(server.generate(prompt, max_tokens=24, cache_salt="other", sampling={"logprobs": 3}))
    assert cold.last.usage.cached_tokens == 0 == other.last.usage.cached_tokens
    assert warm.last.usage.cached_tokens == warm.last.usage.prompt_tokens - 1  # one must be computed
    for again in (warm, other):
        assert again.token_ids == cold.token_ids
        assert again.logprobs == cold.logprobs


def test_64_streams_at_once_are_each_what_the_request_alone_gives(server):
    requests = [dict(text=f"Story number {i}: {STORY}", max_tokens=12, cache_salt=f"load{i}",
                     sampling={"temperature": 0.8, "seed": i, "logprobs": 1}) for i in range(64)]
    alone = [Completion(server.generate(**{**request, "cache_salt": "alone"})) for request in requests[:8]]
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        together = list(pool.map(lambda request: Completion(server.generate(**request)), requests))
    assert all(answer.error is None for answer in together), [a.error for a in together if a.error]
    assert all(len(answer.token_ids) == answer.last.usage.completion_tokens <= 12 for answer in together)
    for one, beside in zip(alone, together):
        assert one.token_ids == beside.token_ids
        assert one.logprobs == beside.logprobs


def test_a_missing_seed_is_drawn_and_repeats_the_answer(server):
    first = Completion(server.generate(STORY, max_tokens=16, sampling={"temperature": 1.0}))
    again = Completion(server.generate(STORY, max_tokens=16, sampling={"temperature": 1.0, "seed": first.last.seed}))
    other = Completion(server.generate(STORY, max_tokens=16, sampling={"temperature": 1.0, "seed": first.last.seed ^ 1}))
    assert first.token_ids == again.token_ids
    assert first.token_ids != other.token_ids


def test_a_stop_string_ends_the_text_and_none_of_it_is_shown(server):
    whole = Completion(server.generate(chat=CAPITAL, max_tokens=32))
    answer = Completion(server.generate(chat=CAPITAL, max_tokens=32, stop=["ance is", "no such text"]))
    assert answer.text == whole.text[: whole.text.index("ance is")]
    assert answer.last.finish_reason == generation.FINISH_REASON_STOP_STRING
    assert answer.last.matched_string == "ance is"
    assert answer.last.usage.completion_tokens <= 6


def test_stop_tokens_min_tokens_and_bias(server):
    stopped = Completion(server.generate(chat=CAPITAL, max_tokens=32, sampling={"stop_token_ids": [4649]}))
    assert stopped.last.finish_reason == generation.FINISH_REASON_STOP_TOKEN
    assert stopped.last.matched_token_id == 4649
    longer = Completion(server.generate(chat=CAPITAL, max_tokens=32, sampling={"min_tokens": 12}))
    assert longer.last.usage.completion_tokens >= 12
    biased = Completion(server.generate(chat=CAPITAL, max_tokens=1, sampling={"logit_bias": {504: -100.0}}))
    assert biased.token_ids == [60]  # the runner-up of the reference
    ignoring = Completion(server.generate(chat=CAPITAL, max_tokens=12, sampling={"ignore_eos": True}))
    assert ignoring.last.finish_reason == generation.FINISH_REASON_MAX_TOKENS
    assert ignoring.last.usage.completion_tokens == 12


def test_echo_sends_the_prompt_first_with_its_log_probabilities(server):
    answer = Completion(server.generate(STORY, max_tokens=3, echo=True, sampling={"logprobs": 0}))
    prompt = [chunk for chunk in answer.chunks if chunk.is_prompt]
    ids = [token for chunk in prompt for token in chunk.token_ids]
    assert "".join(chunk.text for chunk in prompt) == STORY
    tokenized = server.generation.Tokenize(generation.TokenizeRequest(text=STORY))
    assert ids == list(tokenized.token_ids)
    assert sum(len(chunk.logprobs) for chunk in prompt) in (len(ids) - 1, len(ids))


def test_tokenize_and_detokenize_are_inverse(server):
    text = "naïve café — 日本語 🙂 1234\n\n  code()"
    ids = server.generation.Tokenize(generation.TokenizeRequest(text=text)).token_ids
    assert server.generation.Detokenize(generation.DetokenizeRequest(token_ids=ids)).text == text
    model = server.generation.GetModel(generation.GetModelRequest())
    assert (model.architecture, model.context_length, model.vocabulary_size) == ("llama", 8192, 49152)
    assert model.has_chat_template and model.block_size == 16 and model.block_count > 0


@pytest.mark.parametrize(
    "fields, code, field",
    [
        (dict(text="x", model="other"), grpc.StatusCode.NOT_FOUND, None),
        (dict(text=""), grpc.StatusCode.INVALID_ARGUMENT, "text"),
        (dict(ids=[49152]), grpc.StatusCode.INVALID_ARGUMENT, "token_ids"),
        (dict(text="x", max_tokens=0), grpc.StatusCode.INVALID_ARGUMENT, "max_tokens"),
        (dict(text="x", max_tokens=9000), grpc.StatusCode.INVALID_ARGUMENT, "max_tokens"),
        (dict(text="x", n=65), grpc.StatusCode.INVALID_ARGUMENT, "n"),
        (dict(text="x", beam_width=33), grpc.StatusCode.INVALID_ARGUMENT, "beam_width"),
        (dict(text="x", stop=[""]), grpc.StatusCode.INVALID_ARGUMENT, "stop"),
        (dict(text="x", stop=["s"] * 17), grpc.StatusCode.INVALID_ARGUMENT, "stop"),
        (dict(text="x", priority=10**6), grpc.StatusCode.INVALID_ARGUMENT, "priority"),
        (dict(text="x", request_id="not allowed!"), grpc.StatusCode.INVALID_ARGUMENT, "request_id"),
        (dict(text="x", sampling={"temperature": -1}), grpc.StatusCode.INVALID_ARGUMENT, "sampling.temperature"),
        (dict(text="x", sampling={"temperature": float("nan")}), grpc.StatusCode.INVALID_ARGUMENT, "sampling.temperature"),
        (dict(text="x", sampling={"top_p": 0}), grpc.StatusCode.INVALID_ARGUMENT, "sampling.top_p"),
        (dict(text="x", sampling={"min_p": 1.5}), grpc.StatusCode.INVALID_ARGUMENT, "sampling.min_p"),
        (dict(text="x", sampling={"logprobs": 21}), grpc.StatusCode.INVALID_ARGUMENT, "sampling.logprobs"),
        (dict(text="x", sampling={"repetition_penalty": 0}), grpc.StatusCode.INVALID_ARGUMENT, "sampling.repetition_penalty"),
        (dict(text="x", sampling={"logit_bias": {60000: 1.0}}), grpc.StatusCode.INVALID_ARGUMENT, "sampling.logit_bias"),
    ],
)
def test_bad_input_names_the_field(server, fields, code, field):
    answer = Completion(server.generate(**fields))
    assert answer.error is not None and answer.error.code() == code, answer.error
    assert not answer.chunks
    if field is not None:
        violations = [violation for bad in error_details(answer.error, "BadRequest") for violation in bad.field_violations]
        assert any(violation.field.startswith(field) for violation in violations), violations
        assert field.split(".")[-1].split("[")[0] in answer.error.details()


def test_a_duplicate_request_id_is_refused_and_harms_nobody(server):
    first = server.generate(STORY, max_tokens=64, request_id="twice", sampling={"ignore_eos": True})
    next(iter(first))
    second = Completion(server.generate(STORY, max_tokens=4, request_id="twice"))
    assert second.error.code() == grpc.StatusCode.ALREADY_EXISTS
    (info,) = error_details(second.error, "ErrorInfo")
    assert (info.reason, dict(info.metadata)) == ("DUPLICATE_REQUEST_ID", {"request_id": "twice"})
    assert not error_details(second.error, "RetryInfo")
    assert Completion(first).error is None


def test_a_full_queue_refuses_with_the_numbers_and_when_to_come_back_and_harms_nobody(folder):
    server = Server(folder, "--max_sequences", "1", "--max_queued_requests", "2")
    try:
        running = server.generate(STORY, sampling={"ignore_eos": True})
        next(iter(running))
        waiting = [server.generate(f"{i} {STORY}", max_tokens=4, sampling={"ignore_eos": True}) for i in range(2)]
        wait_until(lambda: server.state().waiting_requests == 2, "two requests to wait")
        refused = Completion(server.generate(STORY, max_tokens=1))
        assert refused.error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        (info,) = error_details(refused.error, "ErrorInfo")
        assert (info.reason, dict(info.metadata)) == ("QUEUE_FULL", {"waiting_requests": "2", "limit": "2"})
        (retry,) = error_details(refused.error, "RetryInfo")
        # Nothing has ended yet: the time without an end, which is told as 1 s at least, 30 s at most.
        assert 1000 <= retry.retry_delay.ToMilliseconds() <= 30_000
        running.cancel()
        ended = [Completion(call) for call in waiting]
        assert [answer.error for answer in ended] == [None, None]
        assert [answer.last.usage.completion_tokens for answer in ended] == [4, 4]
        assert Completion(server.generate(STORY, max_tokens=1)).error is None
    finally:
        assert server.stop() == 0, server.process.text()


def test_what_can_never_fit_is_refused_with_the_numbers(folder):
    server = Server(folder, "--num_blocks", "8")
    try:
        answer = Completion(server.generate(STORY, max_tokens=200))
        assert answer.error.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert all(number in answer.error.details() for number in ("max_tokens 200", "14 blocks", "has 8"))
        (info,) = error_details(answer.error, "ErrorInfo")
        assert info.reason == "CANNOT_FIT"
        assert info.metadata["pool_blocks"] == "8" and info.metadata["max_tokens"] == "200"
        assert info.metadata["needed_blocks"] == str(-(-(int(info.metadata["prompt_tokens"]) + 199) // 16))
        alone = Completion(server.generate(STORY, sampling={"ignore_eos": True}))
        assert alone.error is None
        assert alone.last.finish_reason == generation.FINISH_REASON_POOL_EXHAUSTED
        # Two that fit alone but not together: one is preempted and both give what they give alone.
        requests = [dict(text=f"{i} {STORY}", max_tokens=70, cache_salt=str(i), sampling={"ignore_eos": True}) for i in range(2)]
        singles = [Completion(server.generate(**request)) for request in requests]
        calls = [server.generate(**{**request, "cache_salt": f"pair{i}"}) for i, request in enumerate(requests)]
        pair = [Completion(call) for call in calls]
        assert [one.token_ids for one in pair] == [one.token_ids for one in singles]
        assert server.state().preemptions > 0
        assert not server.admin.CheckInvariants(admin_service_pb2.CheckInvariantsRequest()).violations
    finally:
        assert server.stop() == 0
