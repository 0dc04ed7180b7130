#!/usr/bin/env python3
"""Load on an OpenAI-compatible server: streams at once, tokens a second, times to the first token.

    load.py URL --streams 1,4,8 [--requests N] [--tokens N] [--prompts FILE.jsonl] [--chars N] [--body JSON]

Each of `--streams` clients sends one streamed chat after the other, until `--requests` have been answered. Prompts are the lines'
`prompt`, or the first of their `turns`, cut to `--chars` characters so that they fit small contexts. Prints one JSON object a line.
With several URLs the servers take turns at each number of streams. Nothing but Python's standard library is needed.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import time
from urllib.parse import urlsplit
from urllib.request import urlopen


async def answer(host, port, body, headers=""):
    """One streamed chat: (seconds to the first text, seconds in all, tokens)."""
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        data = json.dumps(body).encode()
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data
        )
        await writer.drain()
        status = (await reader.readline()).split()
        if len(status) < 2 or status[1] != b"200":
            raise RuntimeError(f"{status}: {(await reader.read(2000)).decode(errors='replace')}")
        first, tokens = None, 0
        while line := await reader.readline():
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(str(event["error"]))
            if first is None and event.get("choices") and event["choices"][0]["delta"].get("content"):
                first = time.perf_counter() - start
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
        seconds = time.perf_counter() - start
        return seconds if first is None else first, seconds, tokens
    finally:
        writer.close()


async def load(url, streams, requests, prompts, options):
    """`streams` clients, each with one request at a time."""
    at = urlsplit(url)
    with urlopen(f"{url}/v1/models") as listed:
        model = json.load(listed)["data"][0]["id"]
    numbers = iter(range(requests))
    results = []

    async def client():
        for number in numbers:
            body = {
                "model": model,
                "messages": [{"role": "user", "content": prompts[number % len(prompts)]}],
                "max_tokens": options.tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            } | options.body
            results.append(await answer(at.hostname, at.port, body))

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(streams)))
    seconds = time.perf_counter() - start
    firsts = sorted(first for first, _, _ in results)
    rank = lambda share: firsts[min(len(firsts) - 1, int(share * len(firsts)))]
    tokens = sum(tokens for _, _, tokens in results)
    return {
        "url": url,
        "streams": streams,
        "requests": requests,
        "tokens": tokens,
        "tokens_per_s": tokens / seconds,
        "first_token_s": {"p50": statistics.median(firsts), "p90": rank(0.9), "p99": rank(0.99), "max": firsts[-1]},
    }


def read_prompts(path, chars):
    if path is None:
        topics = ["rivers", "trains", "bread", "music", "stars", "gardens", "winter", "bridges"]
        return [f"Write a short text about {topic}." for topic in topics]
    with open(path, encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines if line.strip()]
    return [(text.get("prompt") or text["turns"][0])[:chars] for text in texts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--streams", default="1,4,8,16,32")
    parser.add_argument("--requests", type=int, help="requests in all [default: 4 for each stream, at least 8]")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", metavar="FILE.jsonl")
    parser.add_argument("--chars", type=int, default=1000)
    parser.add_argument("--body", type=json.loads, default={}, help="more fields of each request, as JSON")
    options = parser.parse_args()
    prompts = read_prompts(options.prompts, options.chars)
    levels = [int(level) for level in options.streams.split(",")]
    for _, streams, url in itertools.product(range(options.rounds), levels, options.urls):
        requests = options.requests or max(8, 4 * streams)
        result = asyncio.run(load(url, streams, requests, prompts, options))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
