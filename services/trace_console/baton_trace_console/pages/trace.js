// The trace page: one trace with all its spans, or the newest ones of the key's tenant.

import { getJson, readKey, saveKey, isRemembered } from "./stream.js";
import { element } from "./text.js";
import { Relay, figures, formatMs, scaleSwitch, statusWords } from "./relay.js";

const $ = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);
const wanted = (asked.get("id") || "").trim();
const onlyFailed = asked.get("status") === "error";
let key = readKey();

async function show() {
  $("problem").hidden = true;
  $("key-form").hidden = Boolean(key);
  if (!key) {
    $("key").focus();
    return;
  }
  try {
    if (wanted) showOne(await getJson(`/v1/traces/${encodeURIComponent(wanted)}`, key));
    else showNewest(await getJson(`/v1/traces?${listQuery(asked.get("page"))}`, key));
  } catch (error) {
    $("problem").textContent = error.status === 401 ? "This key was not accepted." : error.message;
    $("problem").hidden = false;
    $("key-form").hidden = error.status !== 401;
  }
}

function showOne(trace) {
  const list = element("ol", { className: "strip wide-strip", "aria-label": "The ten stops" });
  const relay = new Relay(list);
  relay.show(trace);
  $("one").hidden = false;
  $("one-id").textContent = trace.request_id;
  $("figures").replaceChildren(...figures(trace.summary));
  $("waterfall").replaceChildren(scaleSwitch(relay), list, ...(trace.gaps || []).map((gap) => element("p", {
    className: "problem-text", text: `No stop accounts for ${formatMs(gap.duration_ms)}, from ${formatMs(gap.start_ms)} on.` })));
  document.title = `Trace ${trace.request_id.slice(0, 8)} · Baton`;
  if (trace.summary.status === "running") setTimeout(show, 1000);
}

function listQuery(page, failed = onlyFailed) {
  return new URLSearchParams({ limit: "50", ...(failed && { status: "error" }), ...(page && { page }) });
}

function showNewest({ data: traces, next_page: older }) {
  $("newest").hidden = false;
  $("newest-title").textContent = onlyFailed ? "Newest failures" : "Newest traces";
  $("none").hidden = traces.length > 0 || onlyFailed || Boolean(older) || asked.has("page");
  $("kind").textContent = onlyFailed ? "All traces" : "Only failures";
  $("kind").href = `/ui/trace?${listQuery("", !onlyFailed)}`;
  $("older").hidden = !older;
  if (older) $("older").href = `/ui/trace?${listQuery(older)}`;
  $("rows").replaceChildren(...traces.map(({ request_id: id, summary }) => element("tr", {},
    element("th", { scope: "row", className: "mono" }, element("a", { href: `/ui/trace?id=${id}`, text: id.slice(0, 8) })),
    element("td", { text: whenWords(new Date(summary.started_at * 1000)) }),
    element("td", {}, element("span", { className: `badge ${summary.status}`, text: statusWords(summary) })),
    element("td", { text: summary.model || "–" }),
    ...[summary.ttft_ms, summary.tpot_ms, summary.total_ms].map((value) => element("td", { className: "number", text: formatMs(value) })),
    element("td", { className: "number", text: String(summary.completion_tokens ?? "–") }))));
}

// Today the time is enough, and fits on a telephone.
function whenWords(moment) {
  return moment.toDateString() === new Date().toDateString() ? moment.toLocaleTimeString() : moment.toLocaleString();
}

$("trace-id").value = wanted;
$("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = $("trace-id").value.trim();
  location.assign(id ? `/ui/trace?id=${encodeURIComponent(id)}` : "/ui/trace");
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  saveKey(key, isRemembered());
  show();
});
show();
