// Calls through OpenAI's and Anthropic's TypeScript libraries, as their users write them. One call a line on standard
// input, one outcome a line on standard output, in the order in which they end.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const require = createRequire(`${process.env.SHEARWATER_NODE_CLIENTS}/`);
const load = async (name) => (await import(pathToFileURL(require.resolve(name)).href)).default;
const [openai, anthropic] = await Promise.all([load('openai'), load('@anthropic-ai/sdk')]);
const OpenAI = openai.default ?? openai;
const Anthropic = anthropic.default ?? anthropic;
const apiKey = 'no-secret';

// Nothing is set but address and key: retries and timeouts are the library's. Requests are counted.
function client(Library, baseURL, outcome) {
  const counting = (...request) => {
    outcome.requests += 1;
    return fetch(...request);
  };
  return new Library({ baseURL, apiKey, fetch: counting });
}

async function chat({ base, stream, model, prompt }, outcome) {
  const messages = [{ role: 'user', content: prompt }];
  const reply = await client(OpenAI, `${base}/v1`, outcome).chat.completions.create({ model, messages, stream });
  for await (const chunk of stream ? reply : [reply]) {
    for (const choice of chunk.choices) {
      outcome.text += (stream ? choice.delta : choice.message).content ?? '';
      outcome.finished = choice.finish_reason != null;
    }
  }
}

async function responses({ base, stream, model, prompt }, outcome) {
  const reply = await client(OpenAI, `${base}/v1`, outcome).responses.create({ model, input: prompt, stream });
  if (!stream) {
    outcome.text = reply.output_text;
    outcome.finished = reply.status === 'completed';
    return;
  }
  for await (const event of reply) {
    if (event.type === 'response.output_text.delta') outcome.text += event.delta;
    if (event.type === 'response.completed') outcome.finished = event.response.status === 'completed';
    if (event.type === 'response.failed') {
      outcome.error = event.type;
      outcome.message = event.response.error.message;
    }
  }
}

async function messages({ base, stream, model, prompt }, outcome) {
  const asked = { model, max_tokens: 1000, messages: [{ role: 'user', content: prompt }] };
  const library = client(Anthropic, base, outcome);
  if (!stream) {
    const reply = await library.messages.create(asked);
    outcome.text = reply.content.map((block) => block.text).join('');
    outcome.finished = reply.stop_reason != null;
    return;
  }
  const events = library.messages.stream(asked);
  events.on('text', (piece) => (outcome.text += piece));
  outcome.finished = (await events.finalMessage()).stop_reason != null;
}

const RUN = { chat, responses, messages };

async function call(asked) {
  const outcome = { text: '', finished: false, error: '', status: null, message: '', requests: 0 };
  const began = performance.now();
  try {
    await RUN[asked.api](asked, outcome);
  } catch (error) {
    outcome.error = error.constructor.name;
    outcome.status = error.status ?? null;
    outcome.message = error.message;
  }
  outcome.seconds = (performance.now() - began) / 1000;
  console.log(JSON.stringify({ id: asked.id, outcome }));
}

createInterface({ input: process.stdin }).on('line', (line) => call(JSON.parse(line)));
