"""`octavo top --pool`: the picture is the pool, on a terminal of any size and without one."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios

import pytest

from conftest import BUILD, Completion, Server, wait_until
from octavo.v1 import admin_service_pb2 as admin

ROW = re.compile(r"^ *(\d+)  ([.+*#A-Za-z]+)$", re.MULTILINE)
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
STATES = {admin.BLOCK_STATE_FREE: ".", admin.BLOCK_STATE_CACHED: "+"}


@pytest.fixture(scope="module")
def pool(folder):
    server = Server(folder, "--num_blocks=200")
    yield server
    assert server.stop() == 0, server.process.text()


def command(server, looks, interval="50ms"):
    return [BUILD / "bin" / "octavo", "top", "--pool", "--server", server.target, "--looks", str(looks), "--interval", interval]


class Terminal:
    """`octavo top --pool` on a terminal of this size; `text` is all that it wrote."""

    def __init__(self, arguments, columns, rows, **environment):
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        self.process = subprocess.Popen(arguments, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
        os.close(slave)
        self.text = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        """Some more text; empty at the end."""
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            data = b""
        self.text += data.decode().replace("\r\n", "\n")
        return data

    def finish(self):
        while self.read():
            pass
        os.close(self.master)
        assert self.process.wait(60) == 0, self.text
        return self.looks()

    def looks(self):
        return self.text.split("\x1b[H")[1:]


def plain(text):
    return ESCAPE.sub("", text)


def glyphs(text):
    return "".join(row for _, row in ROW.findall(text))


def test_every_block_is_drawn_as_what_it_is(pool):
    shared = [300 + i for i in range(64)]
    assert Completion(pool.generate(ids=[2000 + i for i in range(100)], max_tokens=2)).error is None
    calls = [pool.generate(ids=shared + [10 + i], request_id=f"request-{i}", max_tokens=400, sampling={"ignore_eos": True}) for i in range(2)]
    for call in calls:
        next(iter(call))
    run = subprocess.run(command(pool, looks=1), capture_output=True, text=True, timeout=60)
    blocks = pool.admin.ListBlocks(admin.ListBlocksRequest(page_size=10_000)).blocks
    tables = [pool.admin.GetBlockTable(admin.GetBlockTableRequest(request_id=f"request-{i}")).blocks for i in range(2)]
    for call in calls:
        call.cancel()
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout and max(map(len, run.stdout.splitlines())) <= 80
    drawn = glyphs(run.stdout)
    assert len(drawn) == 200 == len(blocks)
    letters = {name: letter for letter, name in re.findall(r"^([AB])  (request-\d)  .* decode ", run.stdout, re.MULTILINE)}
    assert set(letters) == {"request-0", "request-1"}, run.stdout
    # While both went on: what they took since the picture is not in it.
    owner = {block.block_id: letters[f"request-{i}"] for i, table in enumerate(tables) for block in table}
    for block, glyph in zip(blocks, drawn):
        wanted = STATES.get(block.state) or ("*" if block.reference_count > 1 else owner[block.block_id])
        assert glyph == wanted or (glyph == "." and wanted in "AB"), (block, glyph, wanted)
    assert drawn.count("*") == 4 and drawn.count("+") >= 6 and "A" in drawn and "B" in drawn


def test_a_terminal_is_filled_in_colour_and_a_new_size_is_honoured(pool):
    terminal = Terminal(command(pool, looks=2, interval="60s"), 80, 24)
    while "preemptions" not in terminal.text:
        assert terminal.read()
    terminal.resize(40, 12)
    # The kernel tells the foreground group of a controlling terminal; this one has none.
    os.kill(terminal.process.pid, signal.SIGWINCH)
    first, second = terminal.finish()
    assert "\x1b[2m" in first
    for text, columns, rows in ((first, 80, 24), (second, 40, 12)):
        lines = plain(text).splitlines()
        assert max(map(len, lines)) <= columns and len(lines) < rows
    assert [len(row) for _, row in ROW.findall(plain(first))] == [64, 64, 64, 8]
    assert [len(row) for _, row in ROW.findall(plain(second))] == [16, 13]
    assert [first for first, _ in ROW.findall(plain(second))] == ["0", "112"]


def test_no_color_is_honoured(pool):
    looks = Terminal(command(pool, looks=2), 80, 24, NO_COLOR="1").finish()
    assert len(looks) == 2 and not re.search(r"\x1b\[[0-9;]*m", looks[1])
    assert len(glyphs(plain(looks[1]))) == 200


def test_hits_and_waste_show_over_time(pool):
    running = pool.generate(ids=[7] * 40, max_tokens=800, sampling={"ignore_eos": True})
    next(iter(running))
    process = subprocess.Popen(command(pool, looks=0), stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"})
    try:
        prompt = [50 + i for i in range(90)]
        assert Completion(pool.generate(ids=prompt, max_tokens=1)).error is None
        hits = ""
        while not re.search(r"\[ .*9\] of 100 %", hits):
            # Each time its 89 tokens of 90 are found.
            assert Completion(pool.generate(ids=prompt, max_tokens=1)).error is None
            hits = next(line for line in process.stdout if line.startswith("hit ratio"))
        waste = next(line for line in process.stdout if line.startswith("waste"))
        assert re.search(r"waste +\d+\.\d % \[ *\d+\] of +\d+ %", waste), waste
    finally:
        process.terminate()
        process.wait()
        running.cancel()


def test_too_many_cells_are_refused(pool):
    import grpc

    with pytest.raises(grpc.RpcError) as refused:
        pool.admin.GetPoolMap(admin.GetPoolMapRequest(max_cells=65_537))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "max_cells is 65537; it must be at most 65536" in refused.value.details()
    whole = pool.admin.GetPoolMap(admin.GetPoolMapRequest(max_cells=1))
    assert whole.blocks_per_cell == 200 and len(whole.cells) == 1
    assert whole.cells[0].free_blocks == whole.pool.free_blocks and whole.cells[0].held_blocks == whole.pool.held_blocks
