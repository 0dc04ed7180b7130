"""A full queue, and a server that is told to stop: each with a server of its own."""

import asyncio
import os
from pathlib import Path

import openai
import pytest
from conftest import MESSAGES, MODEL, connection

from server import from_environment

LOGS = Path(os.environ["FOREDRAFT_WORK"])
ROUNDS = 10
CLIENTS = 24


async def ask_at_once(retries: int, url: str) -> list:
    """What many clients get that ask for long answers at the same moment: texts, and exceptions."""
    options = connection(base_url=f"{url}/v1", max_retries=retries)
    async with openai.AsyncOpenAI(**options) as client:
        ask = lambda seed: client.chat.completions.create(  # noqa: E731
            model=MODEL, messages=MESSAGES, seed=seed, max_completion_tokens=200
        )
        return await asyncio.gather(*(ask(i) for i in range(CLIENTS)), return_exceptions=True)


def test_a_full_queue_refuses_and_says_when_to_come_back():
    with from_environment(LOGS / "server-full.log", "--max-batch", "1", "--max-queue", "1", "--alias", MODEL) as server:
        for _ in range(ROUNDS):
            answers = asyncio.run(ask_at_once(0, server.url))
            refused = [answer for answer in answers if isinstance(answer, BaseException)]
            if refused:
                break
        assert refused, f"{CLIENTS} requests at once fit into a queue of 1, in {ROUNDS} rounds"
        assert len(refused) < CLIENTS, "nobody was served"
        for error in refused:
            assert isinstance(error, openai.RateLimitError)
            assert (error.code, error.type) == ("queue_full", "rate_limit_error")
            assert int(error.response.headers["retry-after"]) >= 1
        # The client's own way with it: to wait as long as it was told, and to ask again.
        answers = asyncio.run(ask_at_once(60, server.url))
        assert not [answer for answer in answers if isinstance(answer, BaseException)]


def test_a_server_that_is_told_to_stop_ends_its_streams_well():
    log = LOGS / "server-stopped.log"
    with from_environment(log, "--alias", MODEL) as server:
        with openai.OpenAI(**connection(base_url=f"{server.url}/v1")) as client:
            asked = dict(model=MODEL, messages=MESSAGES, seed=1, n=4)
            whole = client.chat.completions.create(**asked)
            stream = client.chat.completions.create(**asked, stream=True)
            chunks = [next(stream)]
            server.terminate()
            chunks += stream
        texts = [text_of(chunks, index) for index in range(4)]
        assert texts == [choice.message.content for choice in whole.choices]
        server.process.wait(30)
    with openai.OpenAI(**connection(base_url=f"{server.url}/v1")) as client, pytest.raises(openai.APIConnectionError):
        client.models.list()


def text_of(chunks: list, index: int) -> str:
    """The text of one of several answers."""
    parts = (choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index)
    return "".join(parts)
