// One exchange on the chat page: the question, the answer as it comes, its sources, figures and failures.
// Knows nothing of how an answer is had.

import { newRequestId } from "./stream.js";
import { element, renderText } from "./text.js";
import { formatMs } from "./relay.js";

export class Turn {
  // `onTrace(requestId)`: the reader wants to see how this answer came about.
  constructor(log, question, onTrace) {
    Object.assign(this, { log, question, onTrace, text: "", citations: [], usage: null, model: "", reason: "", deltas: 0 });
    this.startedAt = performance.now();
    this.anchor = `source-${newRequestId().slice(0, 8)}-`;
    this.body = element("div", { className: "body" });
    this.extras = element("div", { className: "extras" });
    this.answer = element("article", { className: "turn answer pending", "aria-label": "Answer" }, this.body, this.extras);
    const asked = element("article", { className: "turn asked", "aria-label": "You" }, element("div", { className: "body", text: question }));
    this.body.append(element("span", { className: "thinking", role: "img", "aria-label": "Waiting for the first token" }, element("i"), element("i"), element("i")));
    log.append(asked, this.answer);
    this.answer.scrollIntoView({ block: "end" });
  }

  add(text) {
    this.clock();
    if (this.thinking && !this.text) this.thinking.removeAttribute("open");
    this.text += text;
    if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
  }

  clock() {
    this.lastAt = performance.now();
    if (!this.firstAt) this.firstAt = this.lastAt;
    this.deltas += 1;
  }

  // What the model thinks before it answers: plain text above the answer, folded away once that begins.
  think(text) {
    this.clock();
    if (!this.thoughts) {
      this.thoughts = element("p", { className: "note" });
      this.thinking = element("details", { open: "" }, element("summary", { className: "muted small", text: "Thinking" }), this.thoughts);
      this.answer.insertBefore(this.thinking, this.body);
    }
    this.thoughts.append(text);
  }

  draw() {
    this.drawing = null;
    const { log } = this;
    const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    renderText(this.body, this.prose(), { citationCount: this.citations.length, anchor: this.anchor });
    if (follows) log.scrollTop = log.scrollHeight;
  }

  // The answer without the line that names its sources: the list below it does.
  prose() {
    return this.citations.length ? this.text.replace(/\n\nSources: \[\d+\] [^\n]*$/, "") : this.text;
  }

  note(text) {
    this.extras.append(element("p", { className: "note", text }));
  }

  fail(failure, again) {
    const box = element("div", { className: "failure", role: "alert" }, element("p", { className: "failure-text", text: failure.message }));
    const what = [failure.status ? `HTTP ${failure.status}` : "", failure.code, failure.stop && `at ${failure.stop}`].filter(Boolean).join(" · ");
    if (what) box.append(element("p", { className: "muted small", text: what }));
    if (failure.status !== 401 && failure.status !== 400) box.append(retryButton(failure.retryAfterSeconds, again));
    this.extras.append(box);
  }

  finish(requestId) {
    if (this.drawing) cancelAnimationFrame(this.drawing);
    this.draw();
    this.answer.classList.remove("pending");
    if (this.citations.length) this.extras.append(this.sources());
    if (this.reason === "length") this.note("The answer reached its length limit.");
    if (this.reason === "content_filter") this.note("The answer was cut by a content rule.");
    this.extras.append(this.meta(requestId));
    this.log.scrollTop = this.log.scrollHeight;
  }

  sources() {
    const items = this.citations.map((source, index) => element("li", { id: `${this.anchor}${index + 1}`, text: source, tabindex: "-1" }));
    return element("section", { className: "sources", "aria-label": "Sources" }, element("h3", { text: "Sources" }), element("ol", {}, ...items));
  }

  meta(requestId) {
    const tokens = this.usage ? this.usage.completion_tokens : this.deltas;
    const parts = [];
    if (this.firstAt) {
      parts.push(figure("TTFT", formatMs(this.firstAt - this.startedAt), "Time to first token, seen from this page"));
      if (tokens > 1) parts.push(figure("TPOT", formatMs((this.lastAt - this.firstAt) / (tokens - 1)), "Time per output token after the first"));
      parts.push(figure("", `${tokens} ${tokens === 1 ? "token" : "tokens"}`));
    }
    if (this.model) parts.push(figure("", this.model));
    const copy = element("button", { type: "button", className: "link mono", text: requestId, title: "Copy the request id" });
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(requestId);
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = requestId; }, 1200);
    });
    const show = element("button", { type: "button", className: "link", text: "Show trace" });
    show.addEventListener("click", () => this.onTrace(requestId));
    return element("footer", { className: "meta" }, ...parts, copy, show);
  }
}

function figure(name, value, title) {
  const node = element("span", { className: "fact" }, ...(name ? [element("b", { text: name }), " "] : []), value);
  if (title) node.title = title;
  return node;
}

function retryButton(seconds, again) {
  const button = element("button", { type: "button", className: "quiet", text: "Try again" });
  button.addEventListener("click", () => { button.disabled = true; again(); });
  if (!seconds) return button;
  const until = performance.now() + seconds * 1000;
  const tick = () => {
    const left = Math.ceil((until - performance.now()) / 1000);
    button.disabled = left > 0;
    button.textContent = left > 0 ? `Try again in ${left} s` : "Try again";
    if (left > 0) setTimeout(tick, 250);
  };
  tick();
  return button;
}
