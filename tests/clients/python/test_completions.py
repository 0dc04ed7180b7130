"""Completions: the older interface, prompts in all their forms, echo, and its own log probabilities."""

from conftest import MODEL, PROMPT, check_fields, counts, fetch


def test_a_completion_has_openais_shape(complete):
    answer = complete()
    check_fields(answer)
    assert (answer.object, answer.model) == ("text_completion", MODEL)
    assert answer.id.startswith("cmpl-")
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert answer.usage.completion_tokens == 40


def test_16_tokens_are_the_default(client):
    answer = client.completions.create(model=MODEL, prompt=PROMPT)
    assert answer.usage.completion_tokens == 16


def test_echo_begins_with_the_prompt(complete):
    plain = complete(temperature=0).choices[0].text
    assert complete(temperature=0, echo=True).choices[0].text == PROMPT + plain
    streamed = complete(temperature=0, echo=True, stream=True)
    assert "".join(choice.text for chunk in streamed for choice in chunk.choices) == PROMPT + plain


def test_prompts_come_as_texts_and_as_tokens(complete):
    tokens = fetch("/tokenize", {"prompt": PROMPT})["tokens"]
    one, other = (complete(prompt=prompt, temperature=0).choices[0].text for prompt in (PROMPT, "One day"))
    assert complete(prompt=tokens, temperature=0).choices[0].text == one
    assert fetch("/detokenize", {"tokens": tokens})["prompt"] == PROMPT
    both = complete(prompt=[PROMPT, "One day"], temperature=0, n=2)
    assert [choice.text for choice in both.choices] == [one, one, other, other]
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    lists = complete(prompt=[tokens, tokens], temperature=0)
    assert [choice.text for choice in lists.choices] == [one, one]
    echoed = complete(prompt=tokens, temperature=0, echo=True)
    assert echoed.choices[0].text == PROMPT + one


def test_log_probabilities_have_their_older_shape(complete):
    answer = complete(temperature=0, logprobs=3, seed=1)
    check_fields(answer)
    choice = answer.choices[0]
    told = choice.logprobs
    assert "".join(told.tokens) == choice.text
    for token, own, rivals, offset in zip(told.tokens, told.token_logprobs, told.top_logprobs, told.text_offset, strict=True):
        assert choice.text[offset:].startswith(token)
        assert len(rivals) == 3 and rivals[token] == own == max(rivals.values())


def test_a_stop_text_and_a_seed(complete):
    whole = complete(seed=4).choices[0].text
    assert complete(seed=4).choices[0].text == whole
    word = whole.split()[5]
    choice = complete(seed=4, stop=[word]).choices[0]
    assert (choice.text, choice.finish_reason) == (whole[: whole.index(word)], "stop")


def test_streamed_completions_join_to_the_same(complete):
    whole = complete(n=3, seed=8, logprobs=2)
    texts, tokens, finished = {}, {}, {}
    last = None
    for last in complete(n=3, seed=8, logprobs=2, stream=True, stream_options={"include_usage": True}):
        for choice in last.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            tokens.setdefault(choice.index, []).extend(choice.logprobs.tokens if choice.logprobs else [])
            finished[choice.index] = choice.finish_reason
    for choice in whole.choices:
        assert texts[choice.index] == choice.text
        assert tokens[choice.index] == choice.logprobs.tokens
        assert finished[choice.index] == choice.finish_reason
    assert (last.choices, counts(last)) == ([], counts(whole))


def test_the_models_are_listed(client):
    (card,) = client.models.list().data
    check_fields(card)
    assert (card.id, card.object, card.owned_by) == (MODEL, "model", "foredraft")
    assert client.models.retrieve(MODEL) == card
