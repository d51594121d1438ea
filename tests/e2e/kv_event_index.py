"""An outsider's prefix index, from AdminService.WatchKvEvents alone: what proto/octavo/v1/admin_service.proto promises, in Python."""

import threading

import grpc

MASK = 2**64 - 1


def mix(x):
    """splitmix64, as LayerGroupChange.digest describes it."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def scope_digest(salt):
    scope = b"s" + salt.encode()
    digest = 0
    for byte in scope:
        digest = mix(digest ^ byte)
    return mix(digest ^ len(scope)) if salt else 0


class KvEventIndex:
    """Reads a stream in a thread of its own. `blocks` are the stored ones by id; `error` is how the stream ended."""

    def __init__(self, call):
        self.call = call
        self.lock = threading.Lock()
        self.blocks = {}
        self.reasons = []  # of every `cleared`
        self.snapshot_left = None
        self.next_number = 0
        self.block_size = 0
        self.epochs = []
        self.error = None
        self.problem = None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for response in self.call:
                with self.lock:
                    self.take(response)
        except grpc.RpcError as error:
            self.error = error
        except AssertionError as problem:
            self.problem = problem

    def take(self, response):
        self.block_size = response.block_size
        if not self.epochs or self.epochs[-1] != response.epoch:
            assert not self.epochs or self.epochs[-1] < response.epoch
            self.epochs.append(response.epoch)
        assert 1 <= len(response.events) <= 256
        for event in response.events:
            assert event.sequence_number == self.next_number, (event, self.next_number)
            self.next_number += 1
            kind = event.WhichOneof("change")
            if kind == "cleared":
                self.blocks = {}
                self.reasons.append(event.cleared.reason)
                if self.snapshot_left is None:
                    self.snapshot_left = event.cleared.stored_count
            elif kind == "stored":
                stored = event.stored
                assert stored.block_id not in self.blocks, stored
                assert 1 <= stored.token_count <= self.block_size
                assert stored.parent_prefix_id == 0 or stored.parent_prefix_id in self.prefixes(), stored
                self.blocks[stored.block_id] = stored
                self.snapshot_left = max(0, self.snapshot_left - 1)
            else:
                assert event.removed.block_id in self.blocks, event
                del self.blocks[event.removed.block_id]

    def prefixes(self):
        return {stored.prefix_id for stored in self.blocks.values()}

    def lookup(self, tokens, salt=""):
        """Tokens of the prompt that would be reused (all but the last may be), and the prefix of each block."""
        rest, parent, hit, path = tokens[:-1], 0, 0, []
        with self.lock:
            while True:
                best, run = None, 0
                for stored in self.blocks.values():
                    if stored.parent_prefix_id != parent or (parent == 0 and stored.scope_digest != scope_digest(salt)):
                        continue
                    count = 0
                    for ours, theirs in zip(rest, stored.token_ids):
                        if ours != theirs:
                            break
                        count += 1
                    if count > run:
                        best, run = stored, count
                if run == 0:
                    return hit, path
                hit, rest, parent = hit + run, rest[run:], best.prefix_id
                path.append(best.prefix_id)
                if run < self.block_size:
                    return hit, path

    def difference(self, listed):
        """What differs from the blocks that ListBlocks gave; empty when nothing does."""
        assert self.problem is None, self.problem
        with self.lock:
            wanted = {block.block_id: block for block in listed if block.indexed and not block.valid_from_step}
            if set(wanted) != set(self.blocks):
                return f"stored {sorted(self.blocks)}, listed {sorted(wanted)}"
            for block_id, block in wanted.items():
                stored = self.blocks[block_id]
                if stored.token_count != block.token_count:
                    return f"block {block_id} has {stored.token_count} tokens, not {block.token_count}"
                if (stored.parent_prefix_id != 0) != block.HasField("parent_block_id"):
                    return f"block {block_id} begins a sequence, or does not"
                if stored.parent_prefix_id and self.blocks[block.parent_block_id].prefix_id != stored.parent_prefix_id:
                    return f"block {block_id} has another parent"
            return ""
