"""A worker written from the comments of proto/octavo/v1 alone: it proves that the contract between scheduler and workers is complete.

It registers, is dialled back, keeps block tables, checks digests and step order, and answers each sampling row with a token that is a
function of (seed, position). It computes no model. For every page it remembers which (sequence, position, token) was written to each
slot, so a plan that reads a slot nobody wrote is caught as the scheduler's fault.

    python tests/e2e/python_worker.py --scheduler 127.0.0.1:7000

The sizes default to those of SmolLM2-135M.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import uuid

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
MASK = (1 << 64) - 1
STORED_RESULTS = 4


def import_stubs():
    """The code of the protos; generated into a temporary folder unless something on sys.path has it."""
    try:
        import octavo.v1.worker_service_pb2_grpc  # noqa: F401
        return
    except ImportError:
        pass
    from grpc_tools import protoc
    import grpc_tools

    out = tempfile.mkdtemp(prefix="octavo-stubs-")
    protos = sorted(str(path) for path in (ROOT / "proto" / "octavo" / "v1").glob("*.proto"))
    includes = [f"-I{ROOT / 'proto'}", f"-I{pathlib.Path(grpc_tools.__file__).parent / '_proto'}"]
    if protoc.main(["protoc", *includes, f"--python_out={out}", f"--grpc_python_out={out}", *protos]) != 0:
        raise RuntimeError("protoc failed")
    sys.path.insert(0, out)


import_stubs()

from octavo.v1 import (  # noqa: E402
    fleet_service_pb2, fleet_service_pb2_grpc, step_pb2, worker_service_pb2, worker_service_pb2_grpc)


def mix(x):
    """One step of splitmix64, as step.proto writes it."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def entry_digest(sequence_id, index, block_id):
    return mix(mix(sequence_id) ^ ((index << 32) | block_id))


def kv_layout_fingerprint(block_size, layers, kv_heads, head_dim, kv_dtype):
    digest = 0
    for field in (block_size, layers, kv_heads, head_dim, {"f16": 0, "bf16": 1}[kv_dtype]):
        digest = mix(digest ^ field)
    return digest


class Refusal(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def malformed(message):
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


def out_of_step(message):
    return Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)


class Sequence:
    def __init__(self, start):
        self.seed = start.seed
        self.sampling = start.sampling
        self.sampled = None  # (position, token)


class Replica:
    """What StartReplica begins: tables, stored results and the record of what was written where."""

    def __init__(self, replica_id, epoch, block_count, block_size, vocabulary):
        self.replica_id = replica_id
        self.epoch = epoch
        self.block_count = block_count
        self.block_size = block_size
        self.vocabulary = vocabulary
        self.step = 0
        self.results = collections.OrderedDict()
        self.sequences = {}
        self.tables = {}
        self.slots = {}  # (block, offset) -> (position, token)

    def digest(self):
        entries = ((s, i, b) for s, table in self.tables.items() for i, b in enumerate(table))
        return sum(entry_digest(*entry) for entry in entries) & MASK

    def execute(self, plan):
        if plan.epoch < self.epoch:
            raise out_of_step(f"epoch {plan.epoch} is below {self.epoch}")
        if plan.step in self.results and not plan.resets_state:
            return self.results[plan.step]
        if plan.step != self.step + 1 and not (plan.resets_state and plan.step > self.step):
            raise out_of_step(f"step {plan.step} follows {self.step}")
        sequences, tables = self.change_tables(plan)
        self.sequences, self.tables, self.step = sequences, tables, plan.step
        self.copy_blocks(plan)
        result = step_pb2.StepResult(replica_id=plan.replica_id, epoch=plan.epoch, step=plan.step, digests=[self.digest()])
        self.run_rows(plan, result)
        self.results[plan.step] = result
        while len(self.results) > STORED_RESULTS:
            self.results.popitem(last=False)
        return result

    def change_tables(self, plan):
        """The state after reset, releases, starts and table changes; raises before anything is kept."""
        sequences = {} if plan.resets_state else dict(self.sequences)
        tables = {} if plan.resets_state else {s: list(t) for s, t in self.tables.items()}
        for sequence_id in plan.released_sequence_ids:
            if sequences.pop(sequence_id, None) is None:
                raise malformed(f"releases sequence {sequence_id}, which is not held")
            tables.pop(sequence_id)
        for start in plan.starts:
            if start.sequence_id in sequences:
                raise malformed(f"starts sequence {start.sequence_id} twice")
            sequences[start.sequence_id] = Sequence(start)
            tables[start.sequence_id] = []
        if len(set(plan.sequence_ids)) != len(plan.sequence_ids):
            raise malformed("a sequence has two rows")
        if len(plan.layer_groups) != 1:
            raise malformed("there is one layer group")
        change = plan.layer_groups[0]
        if len(change.new_block_counts) != len(plan.sequence_ids):
            raise malformed("new_block_counts and sequence_ids differ in length")
        new_blocks = iter(change.new_block_ids)
        for sequence_id, count in zip(plan.sequence_ids, change.new_block_counts):
            if sequence_id not in sequences:
                raise malformed(f"a row names sequence {sequence_id}, which is not held")
            tables[sequence_id].extend(next(new_blocks) for _ in range(count))
        for sequence_id, index, block in zip(change.changed_sequence_ids, change.changed_indexes, change.changed_block_ids):
            tables[sequence_id][index] = block
        if any(not 0 <= block < self.block_count for table in tables.values() for block in table):
            raise malformed("a block lies outside the pool")
        mine = sum(entry_digest(s, i, b) for s, table in tables.items() for i, b in enumerate(table)) & MASK
        if mine != change.digest:
            raise out_of_step(f"digest {change.digest:#x} of the plan, {mine:#x} of the tables")
        return sequences, tables

    def copy_blocks(self, plan):
        change = plan.layer_groups[0]
        copies = list(zip(change.copy_source_block_ids, change.copy_destination_block_ids, change.copy_token_counts))
        read = [[self.slots.get((source, offset)) for offset in range(count)] for source, _, count in copies]
        for (_, destination, _), slots in zip(copies, read):
            for offset, slot in enumerate(slots):
                self.slots[(destination, offset)] = slot

    def run_rows(self, plan, result):
        tokens = iter(plan.token_ids)
        computed = None  # (end, samples) of the nearest row above that computes tokens
        for row, sequence_id in enumerate(plan.sequence_ids):
            sequence, table = self.sequences[sequence_id], self.tables[sequence_id]
            first, count, flags = plan.first_positions[row], plan.token_counts[row], plan.row_flags[row]
            if flags & step_pb2.ROW_FLAG_SHARES_LOGITS:
                if count or flags != step_pb2.ROW_FLAG_SHARES_LOGITS | step_pb2.ROW_FLAG_SAMPLES:
                    raise malformed(f"the row of sequence {sequence_id} shares logits, counts {count} tokens and has flags {flags}")
                if computed != (first, True):
                    raise malformed(f"sequence {sequence_id} shares the logits of position {first}, the row above gives {computed}")
            else:
                computed = (first + count, bool(flags & step_pb2.ROW_FLAG_SAMPLES))
            inputs = [next(tokens) for _ in range(count - bool(flags & step_pb2.ROW_FLAG_FEEDS_SAMPLED))]
            if flags & step_pb2.ROW_FLAG_FEEDS_SAMPLED:
                position, token = sequence.sampled
                if position != first + count - 1:
                    raise malformed(f"feeds position {first + count - 1}, sampled was {position}")
                inputs.append(token)
            if (first + count - 1) // self.block_size >= len(table):
                raise malformed(f"position {first + count - 1} of sequence {sequence_id} is not covered by its table")
            for position in range(first):  # attention reads all of it
                slot = self.slots.get((table[position // self.block_size], position % self.block_size))
                if slot is None or slot[0] != position:
                    raise malformed(f"sequence {sequence_id} reads position {position}, whose slot holds {slot}")
            for offset, token in enumerate(inputs):
                position = first + offset
                self.slots[(table[position // self.block_size], position % self.block_size)] = (position, token)
            if flags & step_pb2.ROW_FLAG_SCORES:
                for offset, token in enumerate(inputs[1:]):
                    self.add_outcome(result.scored, sequence_id, sequence, first + offset + 1, token)
            if flags & step_pb2.ROW_FLAG_SAMPLES:
                position = first + count
                token = self.choose(sequence, position)
                sequence.sampled = (position, token)
                self.add_outcome(result.sampled, sequence_id, sequence, position, token)

    def choose(self, sequence, position):
        # Ordinary tokens: the vocabulary's first thousand holds control tokens and single bytes in most models.
        return 1000 + mix(mix(sequence.seed) ^ position) % (self.vocabulary - 1000)

    def add_outcome(self, outcomes, sequence_id, sequence, position, token):
        outcomes.sequence_ids.append(sequence_id)
        outcomes.positions.append(position)
        outcomes.token_ids.append(token)
        wanted = sequence.sampling.logprobs if sequence.sampling.HasField("logprobs") else 0
        outcomes.logprobs.append(-1.0 if sequence.sampling.HasField("logprobs") else 0.0)
        outcomes.top_counts.append(wanted)
        for rank in range(wanted):
            outcomes.top_token_ids.append(token if rank == 0 else (token + rank) % self.vocabulary)
            outcomes.top_logprobs.append(-1.0 - rank)


class WorkerService(worker_service_pb2_grpc.WorkerServiceServicer):
    def __init__(self, options, instance_id):
        self.options = options
        self.instance_id = instance_id
        self.lock = threading.Lock()
        self.load = None
        self.plan = None
        self.replica = None
        self.highest_epoch = 0

    def LoadModel(self, request, context):
        options = self.options
        if request.model_fingerprint != options.fingerprint:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"my model is {options.fingerprint:#018x}")
        if request.world_size != 1 or request.rank != 0:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "one rank is all I am")
        kv_dtype = request.kv_dtype or "f16"
        per_block = 2 * 2 * options.layers * options.kv_heads * options.head_dim * request.block_size
        with self.lock:
            self.load = request
            self.plan = worker_service_pb2.MemoryPlan(
                total_bytes=1 << 30, weight_bytes=1 << 20, bytes_per_block=per_block, pool_bytes=options.blocks * per_block,
                block_count=options.blocks, max_block_count=2 * options.blocks)
            fingerprint = kv_layout_fingerprint(request.block_size, options.layers, options.kv_heads, options.head_dim, kv_dtype)
            return worker_service_pb2.LoadModelResponse(memory_plan=self.plan, kv_layout_fingerprint=fingerprint, kv_dtype=kv_dtype)

    def StartReplica(self, request, context):
        with self.lock:
            if self.load is None:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "LoadModel is missing")
            if request.epoch < self.highest_epoch:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"epoch {request.epoch} is below {self.highest_epoch}")
            if request.block_count > self.plan.max_block_count:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{request.block_count} blocks, at most {self.plan.max_block_count}")
            self.highest_epoch = request.epoch
            self.replica = Replica(request.replica_id, request.epoch, request.block_count, self.load.block_size,
                                   self.options.vocabulary)
        return worker_service_pb2.StartReplicaResponse()

    def Execute(self, requests, context):
        with self.lock:
            replica = self.replica
        if replica is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "StartReplica is missing")
        for request in requests:
            time.sleep(self.options.step_seconds)
            try:
                with self.lock:
                    if replica is not self.replica:
                        raise out_of_step("a later replica has begun")
                    result = replica.execute(request.plan)
            except Refusal as refusal:
                print(f"refused step {request.plan.step}: {refusal}", flush=True)
                context.abort(refusal.code, str(refusal))
            yield worker_service_pb2.ExecuteResponse(result=result)

    def GetWorkerState(self, request, context):
        with self.lock:
            state = worker_service_pb2.GetWorkerStateResponse(instance_id=self.instance_id, epoch=self.highest_epoch, device="python")
            if self.plan is not None:
                state.memory_plan.CopyFrom(self.plan)
            if self.replica is not None:
                state.replica_id = self.replica.replica_id
                state.step = self.replica.step
                state.sequence_count = len(self.replica.sequences)
                state.digests.append(self.replica.digest())
            return state


def error_metadata(error):
    """The metadata of the google.rpc.ErrorInfo that came with an error."""
    from google.rpc import error_details_pb2, status_pb2

    found = {}
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    found.update(info.metadata)
    return found


def register_forever(options, worker, stop):
    stub = fleet_service_pb2_grpc.FleetServiceStub(grpc.insecure_channel(options.scheduler))
    wait = 0.2
    while not stop.wait(wait):
        worker.model_fingerprint = options.fingerprint
        try:
            answer = stub.RegisterWorker(fleet_service_pb2.RegisterWorkerRequest(worker=worker), timeout=5)
            wait = answer.heartbeat_ms / 1000
        except grpc.RpcError as error:
            print(f"not registered, trying again: {error.code().name}: {error.details()}", flush=True)
            wait = 0.5
            if options.fingerprint == 0:
                options.fingerprint = int(error_metadata(error).get("served_fingerprint", 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduler", required=True, help="gRPC target of FleetService")
    parser.add_argument("--fingerprint", type=lambda text: int(text, 0), default=0,
                        help="of its model; without it, it takes the one that the scheduler's refusal names")
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--kv_heads", type=int, default=3)
    parser.add_argument("--head_dim", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=1024)
    parser.add_argument("--step_seconds", type=float, default=0.0, help="how long each step takes")
    options = parser.parse_args()

    instance_id = uuid.uuid4().hex
    service = WorkerService(options, instance_id)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8),
                         options=[("grpc.http2.min_recv_ping_interval_without_data_ms", 250)])
    worker_service_pb2_grpc.add_WorkerServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    worker = fleet_service_pb2.WorkerDescription(
        instance_id=instance_id, address=f"127.0.0.1:{port}", device="python", memory_bytes=1 << 30, min_block_size=1,
        max_block_size=256, kv_dtypes=["f16", "bf16"], model_fingerprint=options.fingerprint, process_id=os.getpid(), version="0")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    print(f"listening on 127.0.0.1:{port}", flush=True)
    register_forever(options, worker, stop)
    server.stop(0).wait()


if __name__ == "__main__":
    main()
