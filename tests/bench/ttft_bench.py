"""Time to first token with a shared prefix of 2,000 tokens: cold, and when an earlier request has left it in the cache.

Starts `octavo serve` on the real model and asks in pairs, one request at a time: the prefix and a question of 20 tokens under a cache
salt of its own, which finds nothing; then the same prefix and another question under the same salt, which finds the prefix. Cold and
warm so take turns on the same machine, and the usage of each answer says that they were what they are called. The time is the
client's, from the call to the first chunk with a token, over loopback. Prints the medians and their ratio; exit status 1 when it is
below 5. Needs the packages of tests/requirements.txt.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from conftest import Completion, Server  # noqa: E402

PREFIX_TOKENS = 2000
QUESTION_TOKENS = 20
LEAST_RATIO = 5
PREFIX = [1000 + 37 * i % 40000 for i in range(PREFIX_TOKENS)]


def question(number):
    """No two begin alike."""
    return [45000 + number] + [300 + i for i in range(QUESTION_TOKENS - 1)]


def first_token_ms(server, ids, salt, cached_tokens):
    """Milliseconds until the first token. Of the prompt, `cached_tokens` must have been found."""
    begun = time.monotonic()
    call = server.generate(ids=ids, max_tokens=2, cache_salt=salt, sampling={"ignore_eos": True})
    first = next(chunk for chunk in call if chunk.token_ids)
    milliseconds = 1000 * (time.monotonic() - begun)
    rest = Completion(call)
    if rest.error is not None:
        raise rest.error
    found = (rest.chunks or [first])[-1].usage.cached_tokens
    if found != cached_tokens:
        raise RuntimeError(f"{found} prompt tokens were cached, expected {cached_tokens}")
    return milliseconds


def measure(folder, pairs):
    """Milliseconds of the cold and of the warm requests, in turn. One pair before them warms the server up and is not counted."""
    server = Server(folder)
    cold, warm = [], []
    try:
        for pair in range(pairs + 1):
            cold.append(first_token_ms(server, PREFIX + question(2 * pair), f"pair{pair}", 0))
            warm.append(first_token_ms(server, PREFIX + question(2 * pair + 1), f"pair{pair}", PREFIX_TOKENS))
    finally:
        if server.stop() != 0:
            raise RuntimeError(server.process.text())
    return cold[1:], warm[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7, help="pairs whose medians count")
    parser.add_argument("--log", type=pathlib.Path, help="file to append a line of JSON to")
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error(f"--pairs is {arguments.pairs}; it must be at least 1")
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = measure(pathlib.Path(folder), arguments.pairs)
    ratio = statistics.median(cold) / statistics.median(warm)
    print(f"time to first token, {PREFIX_TOKENS + QUESTION_TOKENS} prompt tokens, {arguments.pairs} pairs, ms")
    print(f"{'':36}{'median':>10}{'least':>10}{'most':>10}")
    for what, times in ("nothing cached", cold), (f"{PREFIX_TOKENS} tokens cached", warm):
        print(f"{what:36}{statistics.median(times):10.1f}{min(times):10.1f}{max(times):10.1f}")
    print(f"{'PASS' if ratio >= LEAST_RATIO else 'FAIL'}  {ratio:.1f} times sooner, at least {LEAST_RATIO}")
    if arguments.log is not None:
        arguments.log.parent.mkdir(parents=True, exist_ok=True)
        line = {"bench": "ttft", "unix_s": int(time.time()), "prefix_tokens": PREFIX_TOKENS, "question_tokens": QUESTION_TOKENS,
                "cold_ms": [round(ms, 1) for ms in cold], "warm_ms": [round(ms, 1) for ms in warm], "ratio": round(ratio, 2)}
        with open(arguments.log, "a") as log:
            log.write(json.dumps(line) + "\n")
    return 0 if ratio >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
