"""A client that does not read: its request is paused, others go on, and after --slow_reader_timeout it ends.

The client's HTTP/2 window is kept at its first 64 KiB (no probing for more), and an echoed prompt with 20 log-probabilities a token, about
220 bytes each, fills it at once."""

import grpc
import pytest

from conftest import Completion, Server, wait_until
from octavo.v1 import admin_service_pb2 as admin, generation_service_pb2 as generation, generation_service_pb2_grpc

STORY = "Once upon a time there was a small dragon who"
LONG = "word " * 450  # 450 tokens: 100 KB echoed
SMALL_WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024), ("grpc.use_local_subchannel_pool", 1)]
TOKENS = 40


@pytest.fixture()
def slow_client():
    """Starts a Generate stream that nobody reads; the call is cancelled at the end if it still runs."""
    calls = []
    channels = []

    def start(server, name):
        channels.append(grpc.insecure_channel(server.target, options=SMALL_WINDOW))
        request = generation.GenerateRequest(text=LONG, echo=True, request_id=name, max_tokens=TOKENS)
        request.sampling.temperature = 0
        request.sampling.ignore_eos = True
        request.sampling.logprobs = 20
        calls.append(generation_service_pb2_grpc.GenerationServiceStub(channels[-1]).Generate(request, timeout=120))
        return calls[-1]

    yield start
    for call in calls:
        call.cancel()
    for channel in channels:
        channel.close()


def summary(server, name):
    return server.admin.GetRequest(admin.GetRequestRequest(request_id=name)).request


def test_a_reader_that_falls_behind_is_paused_others_go_on_and_it_gets_everything_when_it_reads(server, slow_client):
    call = slow_client(server, "slow")
    wait_until(lambda: server.state().paused_requests == 1, "the slow reader's request to be paused")
    other = server.generate(STORY, max_tokens=TOKENS, sampling={"ignore_eos": True})
    next(other)  # what was in flight for the slow one has ended
    paused = summary(server, "slow")
    assert paused.state == admin.REQUEST_STATE_PAUSED
    assert 0 < paused.completion_tokens < TOKENS
    assert paused.blocks > 0

    other = Completion(other)
    assert other.error is None
    assert other.last.usage.completion_tokens == TOKENS
    steps = server.admin.GetStepTrace(admin.GetStepTraceRequest(step_count=TOKENS // 2)).steps
    assert [len(step.plan.sequence_ids) for step in steps] == [1] * (TOKENS // 2)  # no step computed for the paused one
    still = summary(server, "slow")
    assert (still.state, still.completion_tokens, still.blocks) == (admin.REQUEST_STATE_PAUSED, paused.completion_tokens, paused.blocks)

    slow = Completion(call)
    assert slow.error is None
    assert slow.last.usage.completion_tokens == TOKENS
    quick = Completion(server.generate(LONG, echo=True, max_tokens=TOKENS, sampling={"ignore_eos": True, "logprobs": 20}))
    assert (slow.token_ids, slow.logprobs) == (quick.token_ids, quick.logprobs)
    wait_until(lambda: server.held_blocks() == 0, "the blocks to come back")


def test_a_reader_that_stays_behind_ends_with_resource_exhausted_and_gives_its_blocks_back(folder, slow_client):
    server = Server(folder, "--slow_reader_timeout", "1s")
    try:
        call = slow_client(server, "stuck")
        wait_until(lambda: server.state().paused_requests == 1, "the request to be paused")
        wait_until(lambda: server.held_blocks() == 0, "its blocks to come back")
        end = Completion(call)
        assert end.error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "--slow_reader_timeout" in end.error.details()
        assert not server.admin.CheckInvariants(admin.CheckInvariantsRequest()).violations
        assert Completion(server.generate(STORY, max_tokens=4)).error is None
    finally:
        assert server.stop() == 0, server.process.text()
