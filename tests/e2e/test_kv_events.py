"""KV events: from the stream alone an outsider knows the prefix index, whatever happens to it."""

import json
import os
import signal
import subprocess

import grpc
import pytest

from conftest import Completion, Server, wait_until
from kv_event_index import KvEventIndex
from octavo.v1 import admin_service_pb2 as admin
from test_inspection import grpcurl_path

TEXT = [300 + i * 7 % 1000 for i in range(200)]


@pytest.fixture(scope="module")
def events(folder):
    server = Server(folder, "--kv_event_tokens", "--num_blocks=40")
    yield server
    assert server.stop() == 0, server.process.text()


def watch(server, include_tokens=True):
    return KvEventIndex(server.admin.WatchKvEvents(admin.WatchKvEventsRequest(include_tokens=include_tokens)))


def blocks_of(server):
    return server.admin.ListBlocks(admin.ListBlocksRequest(page_size=10_000)).blocks


def await_equal(server, *indices):
    wait_until(lambda: server.held_blocks() == 0, "requests to end")
    listed = blocks_of(server)
    for index in indices:
        wait_until(lambda: not index.difference(listed), f"the index to be the scheduler's: {index.difference(listed)}", 10)
    return listed


def ask(server, ids, **fields):
    answer = Completion(server.generate(ids=ids, sampling={"ignore_eos": True}, **fields))
    assert answer.error is None, answer.error
    return answer


def lookups_agree(server, index, prompts):
    for ids, salt in prompts:
        lookup = server.admin.LookupPrefix(admin.LookupPrefixRequest(token_ids=admin.LookupTokenIds(ids=ids), cache_salt=salt))
        hit, path = index.lookup(ids, salt)
        assert hit == lookup.hit_tokens, (len(ids), salt)
        whole = hit // index.block_size
        assert path[:whole] == [index.blocks[block.block_id].prefix_id for block in lookup.blocks[:whole]]


def test_two_outsiders_know_the_index_through_hits_leaves_evictions_and_a_reset(events):
    first = watch(events)
    prompts = [(TEXT[:n], salt) for n in (1, 5, 16, 17, 33, 50, 100) for salt in ("", "tenant")]
    for ids, salt in prompts:
        ask(events, ids, cache_salt=salt, max_tokens=3)
    assert await_equal(events, first)
    assert any(stored.token_count < 16 for stored in first.blocks.values())
    second = watch(events)
    # Others push some of it out of the pool of 40 blocks, eight at once.
    running = [events.generate(ids=[1000 + 100 * i + j for j in range(90)], max_tokens=20, sampling={"ignore_eos": True}) for i in range(8)]
    for call in running:
        assert Completion(call).error is None
    await_equal(events, first, second)
    lookups_agree(events, first, prompts + [(TEXT[:40] + [9, 9, 9], ""), (TEXT, "nobody")])
    lookups_agree(events, second, prompts)
    assert events.metrics()['octavo_kv_blocks_evicted_total{model_name="SmolLM2-135M-Instruct.Q4_1"}'] > 0
    events.admin.ResetPrefixCache(admin.ResetPrefixCacheRequest())
    wait_until(lambda: not first.blocks and not second.blocks, "the reset to be told")
    assert first.reasons == second.reasons == [admin.KV_CLEAR_REASON_SNAPSHOT, admin.KV_CLEAR_REASON_RESET]
    ask(events, TEXT[:40], max_tokens=2)
    assert await_equal(events, first, second)
    for index in (first, second):
        index.call.cancel()


def test_a_killed_worker_clears_and_its_successor_is_told_on_the_same_stream(events):
    ask(events, TEXT[:60], max_tokens=3)
    index = watch(events)
    await_equal(events, index)
    assert index.blocks
    os.kill(events.workers()[0].worker.process_id, signal.SIGKILL)
    wait_until(lambda: admin.KV_CLEAR_REASON_REPLICA_LOST in index.reasons, "the loss to be told")
    assert not index.blocks
    wait_until(lambda: any(replica.ready for replica in events.state().replicas), "a new replica")
    ask(events, TEXT[:60], max_tokens=3)
    assert await_equal(events, index)
    assert len(index.blocks) > 3 and len(index.epochs) == 2
    lookups_agree(events, index, [(TEXT[:70], ""), (TEXT[:20], "")])
    index.call.cancel()


def test_without_tokens_the_structure_is_told(events):
    ask(events, TEXT[:60], max_tokens=3)
    index = watch(events, include_tokens=False)
    assert await_equal(events, index)
    assert index.blocks and not any(stored.token_ids for stored in index.blocks.values())
    index.call.cancel()


def test_tokens_are_refused_unless_the_scheduler_shows_them(server):
    call = server.admin.WatchKvEvents(admin.WatchKvEventsRequest(include_tokens=True))
    with pytest.raises(grpc.RpcError) as refused:
        next(iter(call))
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "--kv_event_tokens" in refused.value.details()
    assert Completion(server.generate("Hello", max_tokens=1)).error is None


def test_the_seventeenth_watcher_is_refused_until_one_leaves(server):
    watchers = [watch(server, include_tokens=False) for _ in range(16)]
    wait_until(lambda: all(index.next_number > 0 for index in watchers), "sixteen snapshots")
    late = watch(server, include_tokens=False)
    wait_until(lambda: late.error, "the refusal")
    assert late.error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "16 watchers" in late.error.details()
    watchers[0].call.cancel()

    def enters():
        again = watch(server, include_tokens=False)
        wait_until(lambda: again.error or again.next_number, "an answer")
        again.call.cancel()
        return again.error is None or again.error.code() == grpc.StatusCode.CANCELLED

    wait_until(enters, "room for another watcher")
    for index in watchers:
        index.call.cancel()


def test_a_shutdown_ends_the_stream_at_once(folder):
    server = Server(folder)
    index = watch(server, include_tokens=False)
    wait_until(lambda: index.next_number, "a snapshot")
    server.process.signal(signal.SIGTERM)
    index.thread.join(20)
    assert index.error.code() == grpc.StatusCode.UNAVAILABLE and "shuts down" in index.error.details()
    assert server.process.wait() == 0, server.process.text()


def test_grpcurl_watches(events):
    ask(events, TEXT[:40], max_tokens=2)
    process = subprocess.Popen([grpcurl_path(), "-plaintext", "-d", '{"include_tokens": true}', events.target,
                                "octavo.v1.AdminService/WatchKvEvents"], stdout=subprocess.PIPE, text=True)
    try:
        text = ""
        while not text.endswith("\n}\n"):
            line = process.stdout.readline()
            assert line, text
            text += line
    finally:
        process.kill()
        process.wait()
    first = json.loads(text)
    assert first["events"][0]["cleared"]["reason"] == "KV_CLEAR_REASON_SNAPSHOT"
    assert first["events"][1]["stored"]["token_ids"]
