// Talking to the edge: the API key, plain requests, and the events of a streamed answer.
// Knows HTTP and server-sent events; knows nothing of the page.

const STORAGE_KEY = "baton.key";

export function readKey() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const brought = hash.get("key");
  if (brought) {
    // A fragment never leaves the browser; it goes from the address bar at once.
    saveKey(brought, false);
    hash.delete("key");
    const rest = hash.toString();
    history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
  }
  return sessionStorage.getItem(STORAGE_KEY) || localStorage.getItem(STORAGE_KEY) || "";
}

export function saveKey(key, remember) {
  sessionStorage.setItem(STORAGE_KEY, key);
  if (remember) localStorage.setItem(STORAGE_KEY, key);
  else localStorage.removeItem(STORAGE_KEY);
}

export function isRemembered() {
  return localStorage.getItem(STORAGE_KEY) !== null;
}

export class Failure extends Error {
  // What the edge said went wrong: `status` 0 means that it was not reached.
  constructor(message, { status = 0, code = "", requestId = "", stop = "", retryAfterSeconds = null } = {}) {
    super(message);
    Object.assign(this, { status, code, requestId, stop, retryAfterSeconds });
  }
}

async function call(path, options) {
  try {
    return await fetch(path, { cache: "no-store", credentials: "omit", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server can't be reached. Is Baton running?");
  }
}

async function failureOf(response) {
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    // Not Baton's answer: a proxy's page, perhaps. The status has to do.
  }
  return new Failure(error.message || `The server answered ${response.status}.`, {
    status: response.status,
    code: error.code || "",
    requestId: response.headers.get("x-request-id") || "",
    stop: response.headers.get("x-baton-stop") || "",
    retryAfterSeconds: retryAfter(response.headers),
  });
}

function retryAfter(headers) {
  const milliseconds = Number(headers.get("retry-after-ms"));
  if (milliseconds > 0) return milliseconds / 1000;
  const seconds = Number(headers.get("retry-after"));
  return seconds > 0 ? seconds : null;
}

export async function getJson(path, key) {
  const response = await call(path, { headers: { authorization: `Bearer ${key}` } });
  if (!response.ok) throw await failureOf(response);
  return response.json();
}

export function newRequestId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Yields {type: "open" | "role" | "text" | "finish" | "usage"} and ends after [DONE]. Throws Failure; AbortError
// when `signal` says so.
export async function* streamChat(body, { key, requestId, signal }) {
  const response = await call("/v1/chat/completions", {
    method: "POST",
    signal,
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      "x-request-id": requestId,
    },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
  });
  if (!response.ok) throw await failureOf(response);
  yield { type: "open", requestId: response.headers.get("x-request-id") || requestId };
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) {
      throw new Failure(chunk.error.message || "The answer broke off.", { status: 200, code: chunk.error.code || "", requestId });
    }
    yield* parts(chunk);
  }
  throw new Failure("The connection ended before the answer did.", { status: 200, requestId });
}

function* parts(chunk) {
  const choice = (chunk.choices || [])[0];
  if (choice && choice.delta && choice.delta.role) yield { type: "role", model: chunk.model };
  if (choice && choice.delta && choice.delta.reasoning) yield { type: "reasoning", text: choice.delta.reasoning };
  if (choice && choice.delta && choice.delta.content) yield { type: "text", text: choice.delta.content };
  if (choice && choice.finish_reason) {
    yield { type: "finish", reason: choice.finish_reason, citations: (chunk.baton && chunk.baton.citations) || [] };
  }
  if (chunk.usage) yield { type: "usage", usage: chunk.usage };
}

// The `data` of each event, whatever the pieces in which the bytes arrive.
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      pending += value;
      const complete = pending.replace(/\r\n/g, "\n").split("\n\n");
      pending = complete.pop();
      for (const event of complete) {
        const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
        if (data.length) yield data.join("\n");
      }
    }
  } finally {
    reader.releaseLock();
  }
}
