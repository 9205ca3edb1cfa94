// The relay on the page: ten stops as ten rows. While a question runs a row says where it is; afterwards the
// trace fills it with what happened, and opens to show every span.

import { element } from "./text.js";

export const STOPS = [
  "App", "API gateway", "Prompt builder", "Input guardrails", "LLM gateway",
  "Inference router", "Inference engine", "Output guardrails", "Stream back", "After the answer",
];
const STOP_OF_SERVICE = {
  edge_api: 2, prompt_builder: 3, embedder: 3, input_guardrails: 4, llm_gateway: 5, inference_router: 6,
  engine_worker: 7, output_guardrails: 8, after_answer: 10, trace_console: 10,
};
const WAITS = new Set(["hop", "mailbox", "queue"]);
const HOLDS = new Set(["handle", "attempt", "stream", "wait", "filter"]); // open for long, at work now and then
const STATE_WORDS = { idle: "", active: "at work", passed: "passed", failed: "failed here", absent: "not reached" };

export class Relay {
  constructor(list) {
    this.rows = STOPS.map((name, index) => new Row(index + 1, name));
    list.replaceChildren(...this.rows.map((row) => row.item));
    this.trace = null;
    this.zoomed = false;
  }

  reset() {
    this.trace = null;
    for (const row of this.rows) row.reset();
  }

  // Everything before `active` is passed.
  progress(active) {
    const first = Math.min(...active);
    for (const row of this.rows) {
      if (active.includes(row.number)) row.setState("active");
      else if (row.number < first) row.setState("passed");
    }
  }

  fail(service) {
    const number = STOP_OF_SERVICE[service];
    for (const row of this.rows) {
      if (row.number === number) row.setState("failed");
      else if (row.state === "active") row.setState(number && row.number < number ? "passed" : "idle");
    }
  }

  settle() {
    for (const row of this.rows) if (row.state === "active") row.setState("idle");
  }

  show(trace) {
    this.trace = trace;
    this.draw();
  }

  zoom(on) {
    this.zoomed = on;
    if (this.trace) this.draw();
  }

  draw() {
    const { spans, summary } = this.trace;
    const end = Math.max(...spans.map((span) => span.start_ms + span.duration_ms), 0.001);
    const first = firstTokenAt(this.trace);
    const length = this.zoomed && first ? Math.min(end, first * 1.04) : end;
    for (const row of this.rows) {
      row.show(spans.filter((span) => span.stop === row.number), length, (summary.stop_ms || {})[row.number]);
    }
  }
}

class Row {
  constructor(number, name) {
    this.number = number;
    this.word = element("span", { className: "visually-hidden" });
    this.track = element("span", { className: "track", "aria-hidden": "true" });
    this.time = element("span", { className: "time" });
    this.detail = element("div", { className: "spans" });
    this.summary = element("summary", {},
      element("span", { className: "dot", text: String(number), "aria-hidden": "true" }),
      element("span", { className: "stop-name", text: name }), this.word, this.track, this.time);
    this.box = element("details", {}, this.summary, this.detail);
    this.item = element("li", { className: "stop" }, this.box);
    // Before there is a trace a row has nothing to open.
    this.summary.addEventListener("click", (event) => { if (!this.detail.childElementCount) event.preventDefault(); });
    this.reset();
  }

  reset() {
    this.track.replaceChildren();
    this.detail.replaceChildren();
    this.time.textContent = "";
    this.box.open = false;
    this.setState("idle");
  }

  setState(state) {
    this.state = state;
    this.item.dataset.state = state;
    this.word.textContent = STATE_WORDS[state] ? `, ${STATE_WORDS[state]}` : "";
  }

  show(spans, length, ownMs) {
    if (!spans.length) {
      this.reset();
      this.setState("absent");
      return;
    }
    this.setState(spans.some((span) => span.status === "error") ? "failed" : "passed");
    this.showTime(spans, ownMs);
    this.track.replaceChildren(...spans.map((span) => bar(span, length)));
    this.detail.replaceChildren(spanTable(spans));
  }

  // A stop with an open stream is at work for a small part of it: then that part is what it took.
  showTime(spans, ownMs) {
    const busy = spans.filter((span) => span.attributes.busy_ms !== undefined);
    const workMs = busy.length ? busy.reduce((sum, span) => sum + span.attributes.busy_ms, 0) : ownMs;
    this.time.textContent = workMs === undefined ? "" : formatMs(workMs);
    this.time.title = busy.length ? `Work, within a stream that was open for ${formatMs(ownMs)}` : "";
  }
}

function bar(span, length) {
  const node = element("span", { className: "bar-span", title: `${span.name} ${formatMs(span.duration_ms)}` });
  if (HOLDS.has(span.name)) node.classList.add("whole");
  if (WAITS.has(span.name)) node.classList.add("wait");
  if (span.status !== "ok") node.classList.add(span.status);
  const left = Math.min(100, (span.start_ms / length) * 100);
  node.style.left = `min(${left}%, 100% - 2px)`; // what is very short at the very end is still seen
  node.style.width = `${Math.max(0, Math.min(100 - left, (span.duration_ms / length) * 100))}%`;
  if (left >= 100) node.hidden = true;
  return node;
}

function spanTable(spans) {
  const rows = spans.map((span) => element("tr", {},
    element("th", { scope: "row", text: span.name }),
    element("td", { className: "number", text: formatMs(span.start_ms) }),
    element("td", { className: "number", text: formatMs(span.duration_ms) }),
    element("td", {}, attributeList(span))));
  const head = element("tr", {}, ...["Span", "From", "Took", "What it says"].map((text) => element("th", { scope: "col", text })));
  return element("table", { className: "span-table" }, element("thead", {}, head), element("tbody", {}, ...rows));
}

function attributeList(span) {
  const entries = Object.entries(span.attributes);
  if (span.status !== "ok") entries.unshift(["status", span.status]);
  if (!entries.length) return element("span", { className: "muted", text: span.instance });
  return element("ul", { className: "attributes" }, ...entries.map(([key, value]) =>
    element("li", {}, element("span", { className: "muted", text: `${key} ` }), Array.isArray(value) ? value.join(", ") : String(value))));
}

export function firstTokenAt(trace) {
  const told = trace.spans.find((span) => span.name === "first_token");
  if (told) return told.start_ms + told.duration_ms;
  return trace.summary.ttft_ms || null;
}

export function formatMs(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  if (value >= 100) return `${Math.round(value)} ms`;
  return `${value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

// Two views of the same time: all of it, or up to the first token, where the early stops can be seen.
export function scaleSwitch(relay) {
  const make = (label, zoomed) => {
    const button = element("button", { type: "button", text: label, "aria-pressed": String(relay.zoomed === zoomed) });
    button.addEventListener("click", () => {
      relay.zoom(zoomed);
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
    });
    return button;
  };
  const group = element("div", { className: "switch", role: "group", "aria-label": "Time shown" });
  group.append(make("Whole answer", false), make("To first token", true));
  return group;
}

// `ok, stop`, or `error: queue_full at inference_router`.
export function statusWords(summary) {
  if (summary.status === "ok" && summary.finish_reason) return `ok, ${summary.finish_reason}`;
  const what = summary.error ? `${summary.status}: ${summary.error}` : summary.status;
  return summary.error_stop ? `${what} at ${summary.error_stop}` : what;
}

export function figures(summary) {
  const tokens = summary.completion_tokens === null ? "–" : `${summary.prompt_tokens ?? "–"} in, ${summary.completion_tokens} out`;
  const found = [
    ["First token", formatMs(summary.ttft_ms)],
    ["Per token", formatMs(summary.tpot_ms)],
    ["Total", formatMs(summary.total_ms)],
    ["Tokens", tokens],
    ["Model", summary.model || "–"],
    ["Status", statusWords(summary)],
    ...(summary.cache ? [["From the cache", summary.cache === "exact" ? "same question" : "alike question"]] : []),
    ["Unexplained gap", formatMs(summary.unexplained_gap_ms)],
  ];
  return found.map(([name, value]) => element("div", { className: "figure" }, element("dt", { text: name }), element("dd", { text: value })));
}
