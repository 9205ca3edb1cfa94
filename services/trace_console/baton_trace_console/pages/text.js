// A model's text as DOM nodes: paragraphs, headings, lists, tables, code, emphasis, citations. Every character that the
// model wrote becomes a text node, so nothing in it can become markup, a script or an address to load.

export function element(name, { className, text, ...attributes } = {}, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const FENCE = /^(\s*)(`{3,}(?=[^`]*$)|~{3,})/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const BULLET = /^\s*[-*+]\s+(.*)$/;
const NUMBERED = /^\s*(\d{1,4})[.)]\s+(.*)$/;

// `citationCount`: [1] … [n] become links to the sources, whose ids begin with `anchor`.
export function renderText(target, text, { citationCount = 0, anchor = "" } = {}) {
  const cite = { count: citationCount, anchor };
  const lines = text.split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const [node, next] = block(lines, at, cite);
    if (node) blocks.push(node);
    at = next;
  }
  target.replaceChildren(...blocks);
}

function block(lines, at, cite) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = FENCE.exec(line);
  if (fence) return codeBlock(lines, at, fence[1].length, fence[2]);
  const heading = HEADING.exec(line);
  if (heading) {
    const level = Math.min(6, heading[1].length + 2); // below the page's own headings
    const node = element(`h${level}`);
    inline(node, heading[2], cite);
    return [node, at + 1];
  }
  if (BULLET.test(line)) return list(lines, at, "ul", BULLET, cite);
  if (NUMBERED.test(line)) return list(lines, at, "ol", NUMBERED, cite);
  if (startsTable(lines, at)) return table(lines, at, cite);
  return paragraph(lines, at, cite);
}

function startsTable(lines, at) {
  return ROW.test(lines[at]) && at + 1 < lines.length && RULE.test(lines[at + 1]);
}

function table(lines, at, cite) {
  let end = at + 2;
  while (end < lines.length && ROW.test(lines[end])) end += 1;
  const [head, ...rows] = [at, ...Array.from({ length: end - at - 2 }, (_, row) => at + 2 + row)].map((line) => cells(lines[line]));
  const rowOf = (name, texts) => element("tr", {}, ...texts.map((text) => {
    const cell = element(name);
    inline(cell, text, cite);
    return cell;
  }));
  const body = element("tbody", {}, ...rows.map((texts) => rowOf("td", texts)));
  const node = element("table", {}, element("thead", {}, rowOf("th", head)), body);
  return [element("div", { className: "table-scroll", tabindex: "0" }, node), end];
}

// A bar behind a backslash is part of the text.
function cells(line) {
  return ROW.exec(line)[1].split(/(?<!\\)\|/).map((text) => text.trim().replaceAll("\\|", "|"));
}

function codeBlock(lines, at, indent, mark) {
  let end = at + 1;
  while (end < lines.length && !closes(lines[end].trim(), mark)) end += 1;
  const outdented = lines.slice(at + 1, end).map((line) => line.slice(Math.min(indent, line.search(/\S|$/))));
  const code = element("code", { text: outdented.join("\n") });
  return [element("pre", { tabindex: "0" }, code), end + 1];
}

// A fence is closed by one as long or longer, so code may hold shorter ones.
function closes(line, mark) {
  return line.length >= mark.length && line === mark[0].repeat(line.length);
}

function list(lines, at, name, pattern, cite) {
  const node = element(name);
  const first = pattern.exec(lines[at]);
  if (name === "ol" && first[1] !== "1") node.setAttribute("start", first[1]);
  while (at < lines.length) {
    const match = pattern.exec(lines[at]);
    if (!match) break;
    const item = element("li");
    inline(item, match[match.length - 1], cite);
    node.append(item);
    at += 1;
  }
  return [node, at];
}

function paragraph(lines, at, cite) {
  const node = element("p");
  const startsBlock = (line) => [FENCE, HEADING, BULLET, NUMBERED].some((pattern) => pattern.test(line));
  let first = true;
  while (at < lines.length && lines[at].trim() && (first || !(startsBlock(lines[at]) || startsTable(lines, at)))) {
    if (!first) node.append(element("br"));
    inline(node, lines[at], cite);
    first = false;
    at += 1;
  }
  return [node, at];
}

const ROW = /^\s*\|(.*)\|\s*$/;
const RULE = /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;

const INLINE = /(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[(\d{1,2})\]/;

function inline(target, text, cite) {
  let rest = text;
  for (let match = INLINE.exec(rest); match; match = INLINE.exec(rest)) {
    target.append(rest.slice(0, match.index));
    target.append(span(match, cite));
    rest = rest.slice(match.index + match[0].length);
  }
  target.append(rest);
}

function span(match, cite) {
  const [whole, , code, strong, emphasis, number] = match;
  if (code !== undefined) return element("code", { text: code.replace(/^ (.*[^ ].*) $/, "$1") });
  if (strong !== undefined) return element("strong", { text: strong });
  if (emphasis !== undefined) return element("em", { text: emphasis });
  if (Number(number) >= 1 && Number(number) <= cite.count) {
    return element("a", { className: "cite", href: `#${cite.anchor}${number}`, text: number, "aria-label": `Source ${number}` });
  }
  return document.createTextNode(whole);
}
