"""What the tests with OpenAI's Python client share."""

import json
import os
import subprocess
import urllib.request

import openai
import pytest

MODEL = "stories260k"
PROMPT = "Once upon a time, there was a little girl named Lily."
MESSAGES = [{"role": "user", "content": PROMPT}]


def connect(**options) -> openai.OpenAI:
    """A client of the server; it does not try again by itself, so that a test sees every error."""
    return openai.OpenAI(**connection(**options))


def connection(**options) -> dict:
    """What a client is made with."""
    url = os.environ["FOREDRAFT_URL"] + "/v1"
    return {"base_url": url, "api_key": os.environ["FOREDRAFT_KEY"], "max_retries": 0, "timeout": 120, **options}


@pytest.fixture(scope="session")
def client():
    with connect() as client:
        yield client


@pytest.fixture
def chat(client):
    """Asks for a chat's answer: 40 tokens of a story, unless told otherwise."""

    def ask(**fields):
        return client.chat.completions.create(
            **{"model": MODEL, "messages": MESSAGES, "max_completion_tokens": 40, **fields}
        )

    return ask


@pytest.fixture
def complete(client):
    """Asks for a completion of 40 tokens, unless told otherwise."""

    def ask(**fields):
        return client.completions.create(**{"model": MODEL, "prompt": PROMPT, "max_tokens": 40, **fields})

    return ask


def text(chunks) -> str:
    """The text of a streamed chat with one answer."""
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def check_fields(answer) -> None:
    """That no field is missing or of another type: the client itself takes whatever comes."""
    type(answer).model_validate(answer.to_dict())


def counts(answer) -> tuple[int, int, int]:
    """How many tokens were read and said. How many of them were in a cache already is another matter."""
    return answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens


def foredraft_run(*arguments: str) -> dict:
    """What `foredraft run` answers, plain: without drafts."""
    command = [os.environ["FOREDRAFT_BINARY"], "run", os.environ["FOREDRAFT_MODEL"], "--json", "--threads", "1", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def fetch(path: str, body: dict | None = None):
    """What a path of the server answers that OpenAI's API does not have: JSON, or lines."""
    request = urllib.request.Request(os.environ["FOREDRAFT_URL"] + path)
    request.add_header("Authorization", f"Bearer {os.environ['FOREDRAFT_KEY']}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=60) as response:
        said = response.read().decode()
    return said.splitlines() if body is None else json.loads(said)


def metric(name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    samples = [line.rpartition(" ") for line in fetch("/metrics") if line.startswith((name + "{", name + " "))]
    return sum(float(value) for series, _, value in samples if all(label in series for label in wanted))
