"""The step protocol with a worker written from the protos' comments alone (python_worker.py). It checks order, digests and that no plan
reads a slot nobody wrote, and refuses what is wrong; so a scheduler that leads it through these loads keeps the contract."""

import concurrent.futures
import pathlib
import signal
import subprocess
import sys

import grpc
import pytest

from conftest import MODEL, Completion, Process, await_ready, wait_until
from octavo.v1 import (
    admin_service_pb2 as admin, admin_service_pb2_grpc, fleet_service_pb2 as fleet, fleet_service_pb2_grpc,
    generation_service_pb2 as generation, generation_service_pb2_grpc)

WORKER = pathlib.Path(__file__).with_name("python_worker.py")


class Pair:
    """A scheduler and a worker in Python."""

    def __init__(self, folder, *scheduler_flags):
        self.folder = folder
        ready = folder / f"python-ready-{len(list(folder.iterdir()))}.json"
        self.scheduler = Process(folder, "octavo-scheduler", "--model", MODEL, "--listen", "127.0.0.1:0", "--metrics_listen", "",
                                 "--ready_file", ready, *scheduler_flags)
        self.target = await_ready(self.scheduler, ready)["listen"]
        channel = grpc.insecure_channel(self.target)
        self.generation = generation_service_pb2_grpc.GenerationServiceStub(channel)
        self.admin = admin_service_pb2_grpc.AdminServiceStub(channel)
        self.fleet = fleet_service_pb2_grpc.FleetServiceStub(channel)
        self.worker = None

    def start_worker(self, *flags):
        self.log = self.folder / f"python-worker-{len(list(self.folder.iterdir()))}.log"
        with open(self.log, "wb") as log:
            self.worker = subprocess.Popen([sys.executable, str(WORKER), "--scheduler", self.target, *flags], stdout=log, stderr=log)
        wait_until(self.serves, "the worker to serve")

    def serves(self):
        workers = self.fleet.ListWorkers(fleet.ListWorkersRequest()).workers
        return any(w.state == fleet.WORKER_STATE_READY and w.worker.process_id == self.worker.pid for w in workers)

    def generate(self, text, **fields):
        sampling = fields.pop("sampling", {})
        request = generation.GenerateRequest(text=text, **fields)
        for name, value in sampling.items():
            setattr(request.sampling, name, value)
        return Completion(self.generation.Generate(request, timeout=60))

    def state(self):
        return self.admin.GetSchedulerState(admin.GetSchedulerStateRequest())

    def refusals(self):
        return [line for line in self.log.read_text().splitlines() if line.startswith("refused")]

    def stop(self):
        if self.worker is not None:
            self.worker.kill()
            self.worker.wait()
        assert self.scheduler.stop() == 0, self.scheduler.text()


@pytest.fixture
def pair(folder):
    pair = Pair(folder, "--num_blocks", "90", "--max_step_tokens", "128", "--max_sequences", "32")
    yield pair
    pair.stop()


def load(pair, count):
    def one(i):
        # Every third request shares its beginning with others, so that prefixes are hit.
        text = f"{'The quick brown fox jumps over the lazy dog. ' * 4 if i % 3 == 0 else ''}Request {i} says hello. " * 2
        return pair.generate(text, max_tokens=20 + i, sampling={"ignore_eos": True, "seed": i})

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_a_crowded_pool_never_makes_a_plan_that_the_worker_refuses(pair):
    # All of them wait before there is a worker, so that they crowd the pool however fast or slow the machine is.
    with concurrent.futures.ThreadPoolExecutor(1) as early:
        waiting = early.submit(load, pair, 32)
        wait_until(lambda: pair.state().waiting_requests == 32, "32 requests to wait")
        pair.start_worker()
        first = waiting.result()
    assert [answer.error for answer in first] == [None] * 32
    assert [answer.last.usage.completion_tokens for answer in first] == [20 + i for i in range(32)]
    again = load(pair, 32)
    assert [answer.token_ids for answer in again] == [answer.token_ids for answer in first]
    state = pair.state()
    assert state.preemptions > 0, "the pool was not crowded"
    assert state.prefix_hit_tokens > 0
    assert state.resyncs == 0
    assert pair.refusals() == []
    assert not pair.admin.CheckInvariants(admin.CheckInvariantsRequest()).violations


def begin(pair):
    """A stream on a slow worker that has sent its first tokens."""
    pair.start_worker("--step_seconds", "0.02")
    request = generation.GenerateRequest(text="hello", max_tokens=100)
    request.sampling.seed = 5
    call = pair.generation.Generate(request, timeout=60)
    return call, next(call)


def check_end(pair, call, first):
    """The stream ends on another worker as if it had been on that one from the start."""
    rest = Completion(call)
    assert rest.error is None, rest.error
    alone = pair.generate("hello", max_tokens=100, cache_salt="alone", sampling={"seed": 5})
    assert [*first.token_ids, *rest.token_ids] == alone.token_ids
    assert pair.refusals() == []


def test_the_streams_of_a_killed_worker_go_on_with_the_next_one(pair):
    call, first = begin(pair)
    pair.worker.kill()
    pair.worker.wait()
    pair.start_worker()
    check_end(pair, call, first)


def test_a_worker_that_hangs_is_lost_at_the_deadline_and_a_spare_takes_its_place(pair):
    call, first = begin(pair)
    hung = pair.worker
    hung.send_signal(signal.SIGSTOP)
    try:
        pair.start_worker()
        check_end(pair, call, first)
    finally:
        hung.kill()
        hung.wait()
