// OpenAI's client for Node against the server: the core of what python/ tests at length.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { env } from 'node:process';
import { test } from 'node:test';

import OpenAI from 'openai';

const MODEL = 'stories260k';
const PROMPT = 'Once upon a time, there was a little girl named Lily.';

const connect = (options) =>
  new OpenAI({ baseURL: `${env.FOREDRAFT_URL}/v1`, apiKey: env.FOREDRAFT_KEY, maxRetries: 0, ...options });
const client = connect();

const messages = [{ role: 'user', content: PROMPT }];
const chat = (fields) => client.chat.completions.create({ model: MODEL, messages, max_completion_tokens: 40, ...fields });
const complete = (fields) => client.completions.create({ model: MODEL, prompt: PROMPT, max_tokens: 40, ...fields });

/** What `foredraft run` says, without drafts. */
const run = (...options) => {
  const command = ['run', env.FOREDRAFT_MODEL, '--json', '--threads', '1', '-n', '40', ...options, PROMPT];
  return JSON.parse(execFileSync(env.FOREDRAFT_BINARY, command, { stdio: ['ignore', 'pipe', 'ignore'] })).text;
};

test('a chat says what `foredraft run` says', async () => {
  const greedy = await chat({ temperature: 0 });
  assert.equal(greedy.object, 'chat.completion');
  assert.equal(greedy.choices[0].message.role, 'assistant');
  assert.equal(greedy.choices[0].finish_reason, 'length');
  assert.equal(greedy.usage.completion_tokens, 40);
  assert.equal(greedy.usage.total_tokens, greedy.usage.prompt_tokens + 40);
  assert.equal(greedy.choices[0].message.content, run('--temperature=0'));
  const sampled = await chat({ temperature: 1, top_p: 1, seed: 12 });
  assert.equal(sampled.choices[0].message.content, run('--temperature=1', '--top-p=1', '--seed=12'));
  assert.deepEqual(sampled.speculation.drafters, ['lookup']);
});

test('a completion says what `foredraft run --raw` says', async () => {
  const answer = await complete({ temperature: 0 });
  assert.equal(answer.object, 'text_completion');
  assert.equal(answer.choices[0].text, run('--raw', '--temperature=0'));
  const several = await complete({ prompt: [PROMPT, 'One day'], temperature: 0, echo: true });
  assert.equal(several.choices[0].text, PROMPT + answer.choices[0].text);
  assert.ok(several.choices[1].text.startsWith('One day'));
});

test('streams join to the whole answer', async () => {
  for (const fields of [{ temperature: 0 }, { seed: 3, temperature: 1.3 }]) {
    const whole = await chat(fields);
    let text = '';
    let usage = null;
    for await (const chunk of await chat({ ...fields, stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    // How many tokens were in a cache already is another matter.
    assert.deepEqual({ ...usage, prompt_tokens_details: null }, { ...whole.usage, prompt_tokens_details: null });
  }
  let text = '';
  for await (const chunk of await complete({ seed: 3, stream: true })) text += chunk.choices[0]?.text ?? '';
  assert.equal(text, (await complete({ seed: 3 })).choices[0].text);
});

test("the client's own accumulator agrees", async () => {
  const whole = await chat({ seed: 5 });
  const stream = client.chat.completions.stream({ model: MODEL, messages, max_completion_tokens: 40, seed: 5 });
  assert.equal(await stream.finalContent(), whole.choices[0].message.content);
});

test('a stream may be left in the middle', async () => {
  const stream = await chat({ max_completion_tokens: 400, n: 4, stream: true });
  let chunks = 0;
  for await (const chunk of stream) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    chunks += 1;
    if (chunks === 8) break;
  }
  assert.equal(chunks, 8);
  assert.ok(stream.controller.signal.aborted);
  assert.ok((await chat()).choices[0].message.content);
});

test('log probabilities', async () => {
  const { choices } = await chat({ temperature: 0, logprobs: true, top_logprobs: 4 });
  const tokens = choices[0].logprobs.content;
  assert.equal(tokens.length, 40);
  const bytes = Buffer.from(tokens.flatMap((token) => token.bytes));
  assert.equal(bytes.toString('utf8'), choices[0].message.content);
  for (const token of tokens) {
    assert.equal(token.top_logprobs.length, 4);
    assert.equal(token.top_logprobs[0].token, token.token);
    assert.ok(token.logprob <= 0 && token.logprob >= token.top_logprobs[1].logprob);
  }
  const older = (await complete({ temperature: 0, logprobs: 2 })).choices[0];
  assert.equal(older.logprobs.tokens.join(''), older.text);
});

test('n answers, whole and streamed', async () => {
  const whole = await chat({ n: 3, seed: 7, temperature: 1.2 });
  const texts = whole.choices.map((choice) => choice.message.content);
  assert.equal(new Set(texts).size, 3);
  const streamed = ['', '', ''];
  for await (const chunk of await chat({ n: 3, seed: 7, temperature: 1.2, stream: true })) {
    for (const choice of chunk.choices) streamed[choice.index] += choice.delta.content ?? '';
  }
  assert.deepEqual(streamed, texts);
});

test('a stop text ends the answer before it', async () => {
  const whole = (await chat({ temperature: 0 })).choices[0].message.content;
  const stop = whole.split(' ')[6];
  const { choices } = await chat({ temperature: 0, stop });
  assert.equal(choices[0].message.content, whole.slice(0, whole.indexOf(stop)));
  assert.equal(choices[0].finish_reason, 'stop');
});

test('sixteen requests at once', async () => {
  const ask = (seed) => chat({ seed, temperature: 1 });
  const seeds = Array.from({ length: 16 }, (_, i) => i);
  const together = await Promise.all(seeds.map(ask));
  for (const seed of seeds) {
    const alone = await ask(seed);
    assert.deepEqual(together[seed].choices, alone.choices);
  }
});

test('the models', async () => {
  const { data } = await client.models.list();
  assert.deepEqual(data.map((card) => card.id), [MODEL]);
  assert.equal((await client.models.retrieve(MODEL)).owned_by, 'foredraft');
});

test("refusals are the client's own errors", async () => {
  const refused = (promise, kind, code, param) =>
    assert.rejects(promise, (error) => {
      assert.ok(error instanceof kind, `${error}`);
      assert.equal(error.code, code);
      assert.equal(error.param, param);
      assert.ok(error.requestID);
      return true;
    });
  await refused(chat({ temperature: -1 }), OpenAI.BadRequestError, 'invalid_value', 'temperature');
  await refused(chat({ messages: [] }), OpenAI.BadRequestError, 'invalid_value', 'messages');
  await refused(chat({ n: 0, stream: true }), OpenAI.BadRequestError, 'invalid_value', 'n');
  await refused(complete({ prompt: 'word '.repeat(600) }), OpenAI.BadRequestError, 'context_length_exceeded', 'prompt');
  await refused(chat({ model: 'gpt-4o' }), OpenAI.NotFoundError, 'model_not_found', 'model');
  await refused(client.embeddings.create({ model: MODEL, input: 'x' }), OpenAI.NotFoundError, 'unknown_url', null);
  const stranger = connect({ apiKey: 'wrong' });
  await refused(stranger.models.list(), OpenAI.AuthenticationError, 'invalid_api_key', null);
});
