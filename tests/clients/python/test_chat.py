"""Chats: one object, and the settings that OpenAI documents."""

import math

import pytest
from conftest import MESSAGES, MODEL, PROMPT, check_fields, fetch, foredraft_run


def test_an_answer_has_openais_shape(chat):
    answer = chat()
    check_fields(answer)
    assert (answer.object, answer.model) == ("chat.completion", MODEL)
    assert answer.id.startswith("chatcmpl-") and answer.created > 1_700_000_000
    assert answer.system_fingerprint.startswith("fp_")
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert (choice.message.role, choice.message.refusal, choice.message.tool_calls) == ("assistant", None, None)
    assert len(choice.message.content) > 40
    usage = answer.usage
    assert usage.completion_tokens == 40 and usage.prompt_tokens > 10
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert answer._request_id in answer.id


def test_the_parts_of_a_message_and_all_roles_are_read(chat):
    parts = [{"type": "text", "text": line} for line in ("One day,", "Tom ran.")]
    conversation = [
        {"role": "system", "content": "A story."},
        {"role": "developer", "content": "Short."},
        {"role": "user", "content": parts, "name": "Ann"},
        {"role": "assistant", "content": "He fell."},
        {"role": "user", "content": "Then"},
    ]
    # The template puts messages below each other, and the server joins parts by line breaks.
    joined = [{"role": "user", "content": "A story.\nShort.\nOne day,\nTom ran.\nHe fell.\nThen"}]
    read = [fetch("/tokenize", {"messages": messages})["tokens"] for messages in (conversation, joined)]
    assert read[0] == read[1]
    texts = [chat(messages=messages, temperature=0).choices[0].message.content for messages in (conversation, joined)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("field", ["max_completion_tokens", "max_tokens"])
def test_the_limit_of_tokens_holds(chat, field):
    limits = {"max_completion_tokens": None, field: 5}
    answer = chat(**limits)
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (5, "length")


def test_without_a_limit_an_answer_ends_with_the_context(client):
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert answer.usage.total_tokens == client.models.retrieve(MODEL).max_model_len == 512
    assert answer.choices[0].finish_reason == "length"


def test_a_seed_repeats_an_answer(chat):
    texts = [chat(seed=seed, temperature=1.2).choices[0].message.content for seed in (5, 5, 6, -5, 2**63)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 4


def test_the_seed_that_was_drawn_repeats_an_answer(chat):
    drawn = chat()
    assert chat().seed != drawn.seed
    again = chat(seed=drawn.seed, extra_body={"speculation": {"verify": drawn.speculation["verify"]}})
    assert again.choices == drawn.choices


def test_temperature_0_and_what_leaves_one_token_are_greedy(chat):
    greedy = chat(temperature=0).choices[0].message.content
    assert chat(temperature=0, seed=9).choices[0].message.content == greedy
    assert chat(temperature=2, top_p=1e-6).choices[0].message.content == greedy
    assert chat(temperature=2, extra_body={"top_k": 1}).choices[0].message.content == greedy
    assert chat(temperature=2, extra_body={"min_p": 1}).choices[0].message.content == greedy
    assert chat(temperature=2, seed=1).choices[0].message.content != greedy


def test_stop_texts_cut_the_answer_before_them(chat):
    whole = chat(temperature=0).choices[0].message.content
    words = whole.split()
    for stop in (words[6], [words[9], words[6]], f"{words[6]} {words[7]}"):
        choice = chat(temperature=0, stop=stop).choices[0]
        first = min(whole.index(one) for one in ([stop] if isinstance(stop, str) else stop))
        assert (choice.message.content, choice.finish_reason) == (whole[:first], "stop")


def test_n_answers_are_numbered_and_differ(chat):
    answer = chat(n=3, seed=3, temperature=1.2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3
    assert answer.usage.completion_tokens == 120
    alone = chat(seed=3, temperature=1.2)
    assert alone.choices[0] == answer.choices[0]
    assert alone.usage.prompt_tokens == answer.usage.prompt_tokens


@pytest.mark.parametrize("speculation", ["on", "off"])
def test_log_probabilities(chat, speculation):
    extra = {"speculation": speculation}
    answer = chat(temperature=0, logprobs=True, top_logprobs=5, extra_body=extra)
    check_fields(answer)
    choice = answer.choices[0]
    tokens = choice.logprobs.content
    assert len(tokens) == answer.usage.completion_tokens
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == choice.message.content
    for token in tokens:
        ranked = [rival.logprob for rival in token.top_logprobs]
        assert len(ranked) == 5 and ranked == sorted(ranked, reverse=True)
        # At temperature 0 the likeliest token is taken.
        assert (token.token, token.logprob) == (token.top_logprobs[0].token, ranked[0])
        assert sum(map(math.exp, ranked)) < 1 + 1e-5
    plain = chat(temperature=0, logprobs=True, top_logprobs=5, extra_body={"speculation": False})
    assert plain.choices == answer.choices


def test_log_probabilities_of_a_whole_vocabulary_are_not_needed(chat):
    tokens = chat(logprobs=True, seed=1).choices[0].logprobs.content
    assert all(token.top_logprobs == [] and token.logprob < 0 for token in tokens)
    tokens = chat(logprobs=True, top_logprobs=20, seed=1).choices[0].logprobs.content
    assert all(len(token.top_logprobs) == 20 for token in tokens)


def test_logit_bias_forbids_and_forces_tokens(chat):
    (token,) = foredraft_run("--temperature=0", "-n1", PROMPT)["tokens"]
    likeliest = dict(temperature=0, logprobs=True, top_logprobs=2, max_completion_tokens=3)
    names = lambda **fields: [t.token for t in chat(**likeliest, **fields).choices[0].logprobs.content]  # noqa: E731
    first, second = chat(**likeliest).choices[0].logprobs.content[0].top_logprobs
    assert names()[0] == first.token
    assert names(logit_bias={str(token): -100})[0] == second.token
    assert names(logit_bias={str(token): 100}) == [first.token] * 3


def test_penalties_lower_the_probability_of_what_was_said(chat):
    greedy = dict(temperature=0, max_completion_tokens=200)
    words = lambda **fields: chat(**greedy, **fields).choices[0].message.content.split()  # noqa: E731
    variety = lambda words: len(set(words)) / len(words)  # noqa: E731
    plain = variety(words())
    assert variety(words(frequency_penalty=2)) > plain
    assert variety(words(presence_penalty=2)) > plain
    assert variety(words(extra_body={"repetition_penalty": 1.5})) > plain


def test_a_lookup_draft_is_reported_and_changes_nothing(chat):
    # The first half of a text that says itself again: what follows has been said before.
    said = f"{PROMPT} {PROMPT} {PROMPT}"
    ask = dict(messages=[{"role": "user", "content": said}], temperature=0, max_completion_tokens=100)
    on, off = (chat(**ask, extra_body={"speculation": word}) for word in ("on", "off"))
    assert on.choices == off.choices
    assert off.speculation["drafters"] == [] and off.speculation["drafted"] == 0
    assert off.speculation["steps"] == 100 and off.speculation["tokens_per_step"] == 1
    report = on.speculation
    assert report["drafters"] == ["lookup"] and report["verify"] == "coupled"
    assert 0 < report["accepted"] <= report["drafted"]
    assert report["acceptance_rate"] == pytest.approx(report["accepted"] / report["drafted"])
    assert report["steps"] < 100 and report["tokens_per_step"] == pytest.approx(100 / report["steps"])
    short = chat(**ask, extra_body={"speculation": {"draft_max": 1}})
    assert short.choices == on.choices
    assert len(short.speculation["accepted_by_depth"]) == 1


def test_unknown_fields_are_ignored(chat):
    fields = dict(store=False, metadata={"a": "b"}, service_tier="auto", user="u", parallel_tool_calls=True, tools=[])
    answer = chat(temperature=0, extra_body={"an_unknown_field": 1}, response_format={"type": "text"}, **fields)
    assert answer.choices == chat(temperature=0).choices
