// openai-node as it is, asked for one thing; prints what it saw as JSON lines. It comes from npm: `npm install
// --prefix FOLDER openai`, and BATON_NODE_CLIENTS names FOLDER.
import { createRequire } from "node:module";

const [folder, baseURL, apiKey, what] = process.argv.slice(2);
const { default: OpenAI } = createRequire(`${folder}/_.js`)("openai");
const say = (value) => console.log(JSON.stringify(value));

// Counts the comments in the stream, under the client's own parser.
async function tapped(url, init) {
  const response = await fetch(url, init);
  let pings = 0;
  const tap = new TransformStream({
    transform(piece, out) {
      pings += new TextDecoder().decode(piece).split(": ping").length - 1;
      if (pings >= 3 && pings < 1000) { pings = 1000; say({ heard: true }); }
      out.enqueue(piece);
    },
  });
  return new Response(response.body.pipeThrough(tap), response);
}

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, ...(what === "silence" ? { fetch: tapped } : {}) });
const model = "smollm2-135m";
const messages = [{ role: "user", content: "Hello?" }];

async function failed(asked) {
  try {
    await asked();
    return null;
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code, param: error.param };
  }
}

const jobs = {
  async silence() {
    const stream = await client.chat.completions.create({ model, messages, stream: true });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
    say({ text });
  },
  async all() {
    const chunks = [];
    const options = { stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await client.chat.completions.create({ model, messages, ...options })) chunks.push(chunk);
    const whole = await client.chat.completions.create({ model, messages });
    say({
      streamed: chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join(""),
      usage: chunks.at(-1).usage,
      whole: whole.choices[0].message.content,
      whole_usage: whole.usage,
    });
    const response = client.responses.stream({ model, input: "Hello?" });
    const types = new Set();
    for await (const event of response) types.add(event.type);
    say({ response: (await response.finalResponse()).output_text, types: [...types] });
    const vectors = await client.embeddings.create({ model: "degrees-3d", input: ["a"] });
    const floats = await client.embeddings.create({ model: "degrees-3d", input: ["a"], encoding_format: "float" });
    say({ vector: Array.from(vectors.data[0].embedding), floats: floats.data[0].embedding });
    say({
      errors: [
        await failed(() => client.chat.completions.create({ model: "none", messages })),
        await failed(() => client.chat.completions.create({ model, messages, temperature: 9 })),
        await failed(() => new OpenAI({ baseURL, apiKey: "sk-wrong", maxRetries: 0 }).models.list()),
        await failed(() => client.responses.retrieve("resp_none")),
      ],
    });
    const models = [];
    for await (const card of client.models.list()) models.push(card.id);
    say({ models });
  },
};
await jobs[what]();
