"""Every answer is, byte for byte, what `foredraft run` says with the same seed and without drafts."""

import asyncio

import openai
import pytest
from conftest import MESSAGES, MODEL, PROMPT, connection, foredraft_run

# What the server's fields are called on the command line.
FLAGS = {
    "seed": "--seed",
    "temperature": "--temperature",
    "top_p": "--top-p",
    "top_k": "--top-k",
    "min_p": "--min-p",
    "frequency_penalty": "--frequency-penalty",
    "presence_penalty": "--presence-penalty",
    "repetition_penalty": "--repeat-penalty",
    "stop": "--stop",
}
EXTENSIONS = ("top_k", "min_p", "repetition_penalty")

SETTINGS = {
    "greedy": {"temperature": 0},
    "sampled": {"seed": 1, "temperature": 1, "top_p": 1},
    "hot": {"seed": 2, "temperature": 3, "top_p": 1, "top_k": 0, "min_p": 0},
    "a large seed": {"seed": 2**64 - 1, "temperature": 0.7, "top_p": 1},
    "truncated": {"seed": 3, "temperature": 1.5, "top_p": 0.8, "top_k": 12, "min_p": 0.02},
    "penalties": {"seed": 4, "temperature": 0.8, "top_p": 1, "frequency_penalty": 0.7, "presence_penalty": -0.4},
    "repetition": {"seed": 5, "temperature": 1, "top_p": 1, "repetition_penalty": 1.3},
    "bias": {"seed": 6, "temperature": 1, "top_p": 1, "logit_bias": {"426": -100, "261": 2.5}},
    "stop": {"seed": 7, "temperature": 1, "top_p": 1, "stop": [" the", "said"]},
}


def expected(settings: dict, *arguments: str) -> str:
    flags = ["-n", "100"]
    for field, value in settings.items():
        match field, value:
            case "logit_bias", biases:
                flags += [f"--logit-bias={token}={bias}" for token, bias in biases.items()]
            case _, list():
                flags += [f"{FLAGS[field]}={one}" for one in value]
            case _:
                flags.append(f"{FLAGS[field]}={value}")
    return foredraft_run(*flags, *arguments)["text"]


def fields(settings: dict, **extra) -> dict:
    """The same settings for the client, which knows only OpenAI's own by name."""
    own = {field: value for field, value in settings.items() if field not in EXTENSIONS}
    rest = {field: value for field, value in settings.items() if field in EXTENSIONS}
    return {**own, "extra_body": {**rest, **extra}}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_chats_and_completions(chat, complete, settings):
    chatted, completed = (expected(settings, *arguments) for arguments in ([PROMPT], ["--raw", PROMPT]))
    for speculation in ("on", "off", {"draft_max": 2}, {"tree": "2x2"}):
        asked = fields(settings, speculation=speculation)
        assert chat(max_completion_tokens=100, **asked).choices[0].message.content == chatted
        assert complete(max_tokens=100, **asked).choices[0].text == completed


def test_whatever_else_is_asked_at_the_same_time():
    """16 requests at once, of all kinds, half of them streamed."""
    names = list(SETTINGS)
    kinds = [SETTINGS[names[i % len(names)]] for i in range(16)]
    texts = {name: expected(settings, PROMPT) for name, settings in SETTINGS.items()}

    async def ask(client: openai.AsyncOpenAI, i: int) -> str:
        create = client.chat.completions.create
        asked = dict(model=MODEL, messages=MESSAGES, max_completion_tokens=100, **fields(kinds[i]))
        if i % 2:
            return (await create(**asked)).choices[0].message.content
        stream = await create(**asked, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(**connection()) as client:
            return await asyncio.gather(*(ask(client, i) for i in range(16)))

    answers = asyncio.run(ask_all())
    for i, answer in enumerate(answers):
        assert answer == texts[names[i % len(names)]], f"request {i}, {names[i % len(names)]}"
