// The chat page: one conversation, one question at a time, and the relay beside it.

import { Failure, getJson, isRemembered, newRequestId, readKey, saveKey, streamChat } from "./stream.js";
import { element } from "./text.js";
import { Relay, figures, formatMs, scaleSwitch } from "./relay.js";
import { Turn } from "./turn.js";

const $ = (id) => document.getElementById(id);
const TRACE_TRIES_MS = [50, 150, 300, 600, 1200, 2000];
const MODEL_STORAGE = "baton.model";

const relay = new Relay($("strip"));
const CONVERSATION_STORAGE = "baton.conversation";
const state = { key: readKey(), conversationId: "", running: null, waitingQuestion: "" };

function beginConversation(id = `chat_${newRequestId().slice(0, 24)}`) {
  state.conversationId = id;
  sessionStorage.setItem(CONVERSATION_STORAGE, id);
}

// After a reload the tab goes on with its conversation: the server has kept it.
async function showConversation() {
  const id = state.conversationId;
  try {
    const { turns } = await getJson(`/v1/conversations/${id}`, state.key);
    if (state.conversationId !== id || $("log").querySelector(".turn")) return;
    $("welcome").hidden = true;
    for (const turn of turns) showStored(turn);
    if (turns.length) showTrace(turns[turns.length - 1].request_id, { live: false });
  } catch (error) {
    if (error.status !== 404) say(error.message);
  }
}

function newTurn(question) {
  return new Turn($("log"), question, (requestId) => showTrace(requestId, { live: false }));
}

function showStored(stored) {
  const question = stored.asked.filter((message) => message.role === "user").map((message) => message.content).join("\n");
  const turn = newTurn(question);
  turn.text = stored.answer;
  turn.model = stored.model;
  if (stored.cut_short) turn.note("This answer was cut short.");
  turn.finish(stored.request_id);
}

// ---- One question ------------------------------------------------------------------------------------------

async function ask(question) {
  if (!state.key) {
    state.waitingQuestion = question;
    openKeyDialog();
    return;
  }
  $("welcome").hidden = true;
  const turn = newTurn(question);
  const run = { controller: new AbortController(), requestId: newRequestId(), turn };
  state.running = run;
  showRunning(true);
  relay.reset();
  $("waterfall").replaceChildren();
  relay.progress([2, 3, 4, 5, 6]);
  say("On its way to the engine");
  try {
    await receive(run);
    relay.progress([10]);
    say("Answered; writing the books");
  } catch (error) {
    onFailure(run, error);
  } finally {
    state.running = null;
    showRunning(false);
    turn.finish(run.requestId);
  }
  await showTrace(run.requestId, { live: true });
}

async function receive(run) {
  const { turn } = run;
  const body = {
    model: $("model").value,
    conversation_id: state.conversationId,
    messages: [{ role: "user", content: turn.question }],
  };
  for await (const event of streamChat(body, { key: state.key, requestId: run.requestId, signal: run.controller.signal })) {
    if (event.type === "open") {
      run.requestId = event.requestId;
      relay.progress([7]);
      say("The engine has it");
    } else if (event.type === "text") {
      if (!turn.text) {
        relay.progress([7, 8, 9]);
        say("Answering");
      }
      turn.add(event.text);
    } else if (event.type === "reasoning") {
      turn.think(event.text);
    } else if (event.type === "role") {
      turn.model = event.model;
    } else if (event.type === "finish") {
      turn.citations = event.citations;
      turn.reason = event.reason;
    } else if (event.type === "usage") {
      turn.usage = event.usage;
    }
  }
}

function onFailure(run, error) {
  if (error.name === "AbortError") {
    run.turn.note("Stopped. What was written so far is kept.");
    relay.settle();
    say("Stopped by you");
    return;
  }
  const failure = error instanceof Failure ? error : new Failure(String(error.message || error));
  if (failure.requestId) run.requestId = failure.requestId;
  run.turn.fail(failure, () => ask(run.turn.question));
  relay.fail(failure.stop);
  say(failure.stop ? `Failed at ${failure.stop.replaceAll("_", " ")}` : "Failed");
  if (failure.status === 401) openKeyDialog("This key was not accepted.");
}

function showRunning(running) {
  $("stop").hidden = !running;
  $("send").hidden = running;
  $("log").setAttribute("aria-busy", String(running));
  updateSend();
}

// ---- The trace ---------------------------------------------------------------------------------------------

async function showTrace(requestId, { live }) {
  let shown = 0;
  for (const pause of live ? TRACE_TRIES_MS : [0]) {
    await new Promise((resolve) => { setTimeout(resolve, pause); });
    if (state.running) return;
    let trace;
    try {
      trace = await getJson(`/v1/traces/${requestId}`, state.key);
    } catch (error) {
      if (error instanceof Failure && error.status === 404 && live) continue;
      say(error.message);
      break;
    }
    // Stops report when they are done, some a moment after the answer or after a stop.
    if (trace.spans.length !== shown) drawTrace(trace);
    shown = trace.spans.length;
    const { status, stops } = trace.summary;
    if (status === "error" || (status !== "running" && stops.length === 10)) return;
  }
  relay.settle();
}

function drawTrace(trace) {
  relay.show(trace);
  const { summary } = trace;
  say(`${summary.stops.length} of 10 stops · ${formatMs(summary.total_ms)}`);
  const link = element("a", { href: `/ui/trace?id=${trace.request_id}`, text: "Open the whole trace" });
  $("waterfall").replaceChildren(scaleSwitch(relay), element("dl", { className: "figures small-figures" }, ...figures(summary)), element("p", {}, link));
}

function say(text) {
  $("relay-status").textContent = text;
}

// ---- Key and models ----------------------------------------------------------------------------------------

function openKeyDialog(problem = "") {
  $("key").value = state.key;
  $("key-remember").checked = isRemembered();
  $("key-problem").textContent = problem;
  $("key-problem").hidden = !problem;
  if (!$("key-dialog").open) $("key-dialog").showModal();
  $("key").focus();
}

async function useKey() {
  const key = $("key").value.trim();
  $("key-save").disabled = true;
  try {
    await loadModels(key);
  } catch (error) {
    openKeyDialog(error.status === 401 ? "This key was not accepted." : error.message);
    return;
  } finally {
    $("key-save").disabled = false;
  }
  state.key = key;
  saveKey(key, $("key-remember").checked);
  $("key-dialog").close();
  showKeyState();
  const question = state.waitingQuestion;
  state.waitingQuestion = "";
  if (question) submit(question);
  else $("question").focus();
}

async function loadModels(key) {
  const { data } = await getJson("/v1/models", key);
  const names = data.filter((model) => !model.task).map((model) => model.id);
  if (!names.includes("auto")) names.unshift("auto");
  const wanted = localStorage.getItem(MODEL_STORAGE);
  $("model").replaceChildren(...names.map((name) => element("option", { value: name, text: name })));
  $("model").value = names.includes(wanted) ? wanted : "auto";
  $("model").disabled = false;
}

function showKeyState() {
  $("key-button").textContent = state.key ? "API key" : "Set API key";
  $("key-button").classList.toggle("attention", !state.key);
}

// ---- The composer ------------------------------------------------------------------------------------------

function submit(question) {
  const text = question.trim();
  if (!text || state.running) return;
  $("question").value = "";
  growQuestion();
  ask(text);
}

function updateSend() {
  $("send").disabled = !$("question").value.trim() || state.running !== null;
}

function growQuestion() {
  const box = $("question");
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight, 220)}px`;
  updateSend();
}

function stop() {
  if (state.running) state.running.controller.abort();
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit($("question").value);
});
$("question").addEventListener("input", growQuestion);
$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit($("question").value);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("key-dialog").open) stop();
});
$("stop").addEventListener("click", () => {
  stop();
  $("question").focus();
});
$("new-conversation").addEventListener("click", () => {
  stop();
  beginConversation();
  $("log").replaceChildren($("welcome"));
  $("welcome").hidden = false;
  relay.reset();
  $("waterfall").replaceChildren();
  say("Ten stops, waiting for a question");
  $("question").focus();
});
for (const button of document.querySelectorAll(".suggestion")) {
  button.addEventListener("click", () => submit(button.textContent));
}
$("model").addEventListener("change", () => localStorage.setItem(MODEL_STORAGE, $("model").value));
$("key-button").addEventListener("click", () => openKeyDialog());
$("key-cancel").addEventListener("click", () => $("key-dialog").close());
$("key-dialog").addEventListener("close", () => $("question").focus());
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey();
});

async function start() {
  const stored = sessionStorage.getItem(CONVERSATION_STORAGE);
  beginConversation(stored || undefined);
  showKeyState();
  $("question").focus();
  if (!state.key) return;
  try {
    await loadModels(state.key);
    if (stored) await showConversation();
  } catch (error) {
    if (error.status === 401) openKeyDialog("This key was not accepted.");
    else say(error.message);
  }
}

start();
