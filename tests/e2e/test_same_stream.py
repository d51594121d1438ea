"""Same stream: the worker is killed, stopped and told to end at random moments under many streams, and no client notices but by the time.

OCTAVO_CHAOS_KILLS=N loses N workers instead of 6; OCTAVO_CHAOS_SEED=N draws other moments.
"""

import concurrent.futures
import os
import random
import signal
import threading

import pytest

from conftest import Completion, Server, wait_until
from octavo.v1 import admin_service_pb2
from test_faults import worker_pid

KILLS = int(os.environ.get("OCTAVO_CHAOS_KILLS", "6"))
SEED = int(os.environ.get("OCTAVO_CHAOS_SEED", "1"))
STORIES = ["Once upon a time there was a small dragon who", "The recipe begins with", "In the year 1969", "A proof by induction"]
DEADLINE = "--step_deadline=3s"  # of a step that hangs; a busy machine is given its time


def requests(count):
    """Greedy, sampled, of several samples, and beam searches; some with a common beginning."""
    for i in range(count):
        text = f"{STORIES[i % len(STORIES)]} {'very ' * (i % 7)}"
        common = {"text": text, "max_tokens": 60 + 10 * (i % 4)}
        if i % 8 == 7:
            yield {**common, "beam_width": 3, "n": 2, "sampling": {"ignore_eos": True}}
        elif i % 4 == 0:
            yield {**common, "sampling": {"ignore_eos": True, "logprobs": 2}}
        else:
            yield {**common, "n": 1 + i % 4, "sampling": {"temperature": 0.9, "seed": i, "ignore_eos": True, "logprobs": 1}}


def facts(answer):
    return [(one.token_ids, one.logprobs, one.text, one.last.finish_reason, one.last.score) for one in answer.sequences]


class Watched:
    """A call whose chunks are counted as they come."""

    def __init__(self, call, arrived):
        self.call = call
        self.arrived = arrived

    def __iter__(self):
        for chunk in self.call:
            with self.arrived:
                self.arrived.count += 1
                self.arrived.notify_all()
            yield chunk


def answer_all(server, wanted, arrived):
    def answer(request):
        try:
            return Completion(Watched(server.generate(timeout=600, **request), arrived))
        finally:
            with arrived:
                arrived.running -= 1
                arrived.notify_all()

    arrived.count = 0
    arrived.running = len(wanted)
    with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
        return list(pool.map(answer, wanted))


def lose_workers(server, kinds, arrived, random_, lost):
    """Loses a worker whenever some more chunks have come, as long as streams are running."""
    for kind in kinds:
        pid = wait_until(lambda: worker_pid(server), "a worker to be ready", seconds=60)
        with arrived:
            goal = arrived.count + random_.randrange(1, 120)
            arrived.wait_for(lambda: arrived.count >= goal or arrived.running == 0, timeout=120)
            if arrived.running == 0:
                return
        os.kill(pid, kind)
        lost.append(pid)
        wait_until(lambda: worker_pid(server) != pid, "the loss to be seen", seconds=60)


def check_at_rest(server):
    wait_until(lambda: server.held_blocks() == 0, "all blocks to come back")
    assert not server.admin.CheckInvariants(admin_service_pb2.CheckInvariantsRequest()).violations


@pytest.fixture(scope="module")
def disturbed(folder):
    server = Server(folder, DEADLINE)
    yield server
    assert server.stop() == 0, server.process.text()


def test_lost_workers_cost_no_stream_a_token(disturbed):
    wanted = list(requests(32))
    arrived = threading.Condition()
    expected = [facts(answer) for answer in answer_all(disturbed, wanted, arrived)]
    random_ = random.Random(SEED)
    kinds = [random_.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]) for _ in range(KILLS - 1)] + [signal.SIGSTOP]
    random_.shuffle(kinds)
    lost = []
    while len(lost) < KILLS:
        killer = threading.Thread(target=lose_workers, args=(disturbed, kinds[len(lost):], arrived, random_, lost))
        arrived.running = len(wanted)
        killer.start()
        answers = answer_all(disturbed, wanted, arrived)
        killer.join()
        for request, answer, facts_alone in zip(wanted, answers, expected):
            assert answer.error is None, (request, answer.error)
            assert facts(answer) == facts_alone, request
    assert len(set(lost)) == KILLS
    check_at_rest(disturbed)


def test_a_stream_goes_on_and_counts_each_token_once(disturbed):
    request = {"text": STORIES[0], "max_tokens": 120, "sampling": {"ignore_eos": True}}
    expected = facts(Completion(disturbed.generate(**request)))
    pid = wait_until(lambda: worker_pid(disturbed), "a worker")
    before = disturbed.metrics()
    call = disturbed.generate(**request)
    chunks = []
    for chunk in call:
        chunks.append(chunk)
        if len(chunks) == 20:
            os.kill(pid, signal.SIGKILL)
    assert facts(Completion(chunks)) == expected
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.token_ids]
    assert counts == sorted(counts) and counts[-1] == 120 == sum(len(chunk.token_ids) for chunk in chunks)
    wait_until(lambda: grown(disturbed, before, "generation_tokens_total") == 120, "the metrics to say the same")
    assert grown(disturbed, before, "replica_losses_total") == 1
    check_at_rest(disturbed)


def grown(server, before, metric):
    def total(metrics):
        return sum(value for name, value in metrics.items() if name.split("{")[0] == f"octavo_{metric}")

    return total(server.metrics()) - total(before)
