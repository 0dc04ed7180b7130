"""Streams: chunks join to what comes in one piece, and a client may leave in the middle."""

import time

from conftest import MESSAGES, MODEL, check_fields, counts, metric, text


def test_chunks_join_to_the_whole_answer(chat):
    for settings in ({"seed": 1, "temperature": 0}, {"seed": 2, "temperature": 1.3}, {"seed": 3, "stop": ["was", "."]}):
        whole = chat(**settings)
        chunks = list(chat(**settings, stream=True))
        assert text(chunks) == whole.choices[0].message.content
        first, last = chunks[0], chunks[-1]
        assert first.choices[0].delta.role == "assistant" and first.object == "chat.completion.chunk"
        assert last.choices[0].finish_reason == whole.choices[0].finish_reason
        assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])
        assert {chunk.id for chunk in chunks} == {first.id}
        assert all(chunk.usage is None for chunk in chunks)
        assert last.seed == whole.seed and last.speculation["drafters"] == ["lookup"]


def test_bytes_that_make_no_character_are_the_same_in_both(chat):
    # So hot that the model says bytes at random.
    wild = dict(seed=11, temperature=50, max_completion_tokens=200, extra_body={"top_k": 0, "min_p": 0})
    whole = chat(**wild).choices[0].message.content
    assert "\ufffd" in whole
    assert text(chat(**wild, stream=True)) == whole


def test_the_usage_comes_last_where_it_was_asked_for(chat):
    whole = chat(seed=1)
    *chunks, last = chat(seed=1, stream=True, stream_options={"include_usage": True})
    check_fields(last)
    assert (last.choices, counts(last)) == ([], counts(whole))
    assert all(chunk.usage is None for chunk in chunks)


def test_log_probabilities_are_streamed(chat):
    asked = dict(seed=1, temperature=1, logprobs=True, top_logprobs=2)
    whole = chat(**asked).choices[0].logprobs.content
    chunks = list(chat(**asked, stream=True))
    for chunk in chunks:
        check_fields(chunk)
    streamed = [chunk.choices[0].logprobs for chunk in chunks]
    assert [token for part in streamed if part for token in part.content] == whole


def test_n_answers_are_streamed_side_by_side(chat):
    whole = chat(n=3, seed=4, temperature=1.2)
    texts = ["", "", ""]
    for chunk in chat(n=3, seed=4, temperature=1.2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]


def test_the_clients_own_accumulator_agrees(client, chat):
    # The client takes an answer that its limit cut for a failure.
    asked = dict(seed=6, max_completion_tokens=200, stop=".")
    whole = chat(**asked)
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, **asked) as stream:
        final = stream.until_done().get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "stop"


def test_a_client_that_leaves_takes_its_answers_with_it(chat):
    aborted = lambda: metric("vllm:request_success_total", finished_reason="abort")  # noqa: E731
    before = aborted()
    stream = chat(n=8, max_completion_tokens=490, stream=True)
    for _ in range(12):
        next(stream)
    stream.close()
    deadline = time.monotonic() + 30
    while metric("vllm:num_requests_running") + metric("vllm:num_requests_waiting") > 0:
        assert time.monotonic() < deadline, "the answers go on without their client"
        time.sleep(0.02)
    assert aborted() > before
