"""Refusals, as the client's own exceptions: each names what was wrong."""

import openai
import pytest
from conftest import MODEL, connect

WRONG = {
    "temperature": {"temperature": -1},
    "top_p": {"top_p": 1.5},
    "n": {"n": 0},
    "max_completion_tokens": {"max_completion_tokens": 0},
    "frequency_penalty": {"frequency_penalty": "high"},
    "top_logprobs": {"top_logprobs": 3},
    "logit_bias": {"logit_bias": {"the": 1}},
    "stop": {"stop": [""]},
    "seed": {"seed": 1.5},
    "stream_options": {"stream_options": {"include_usage": True}},
    "messages": {"messages": []},
    "messages[0].role": {"messages": [{"content": "Hi"}]},
    "messages[1].content": {"messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": 5}]},
    "messages[0].content[0].type": {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    },
    "speculation.tree": {"extra_body": {"speculation": {"tree": "wide"}}},
    "speculation.draft_max": {"extra_body": {"speculation": {"draft_max": 100_000}}},
}


@pytest.mark.parametrize("param", WRONG)
def test_a_wrong_field_is_named(chat, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(**WRONG[param])
    error = caught.value
    assert (error.status_code, error.param, error.type) == (400, param, "invalid_request_error")
    assert error.code in ("invalid_value", "unsupported_parameter")
    assert error.request_id and error.body["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"response_format": {"type": "json_object"}},
    ],
    ids=["tools", "response_format"],
)
def test_what_comes_later_is_refused_by_name(chat, fields):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(**fields)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", next(iter(fields)))


def test_a_prompt_beyond_the_context(chat, complete):
    long = "Once upon a time " * 300
    for ask in (lambda: chat(messages=[{"role": "user", "content": long}]), lambda: complete(prompt=long)):
        with pytest.raises(openai.BadRequestError, match="maximum context length is 512 tokens") as caught:
            ask()
        assert caught.value.code == "context_length_exceeded"


def test_completions_are_checked_too(complete):
    wrong = {"prompt": [], "suffix": "the end", "logprobs": 99, "best_of": 3, "max_tokens": -1}
    for field, value in wrong.items():
        with pytest.raises(openai.BadRequestError) as caught:
            complete(**{field: value})
        assert caught.value.param == field


def test_an_error_of_a_stream_comes_before_its_first_chunk(chat):
    with pytest.raises(openai.BadRequestError):
        chat(stream=True, temperature=-1)


@pytest.mark.parametrize("key", ["wrong", "a key for test", "a key for tests2"])
def test_a_wrong_key(key):
    with connect(api_key=key) as client, pytest.raises(openai.AuthenticationError) as caught:
        client.models.list()
    assert caught.value.code == "invalid_api_key"
    assert caught.value.response.headers["www-authenticate"] == "Bearer"


def test_what_is_not_there(client, chat):
    for ask in (
        lambda: chat(model="gpt-4o"),
        lambda: client.models.retrieve("gpt-4o"),
        lambda: client.embeddings.create(model=MODEL, input="text"),
        lambda: client.responses.create(model=MODEL, input="text"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert caught.value.code in ("model_not_found", "unknown_url")
