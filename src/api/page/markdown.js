// Markdown as elements. Text only ever becomes text nodes and attributes are set from a short list, so whatever a
// model writes, no markup of its own comes to life.

const LONGEST_INLINE = 20000;    // beyond this a paragraph is plain text: patterns must not stall the page

const INLINE = new RegExp([
  /(?<ticks>`+)(?<code>[^`]|[^`][\s\S]*?[^`])\k<ticks>(?!`)/,
  /\\(?<escaped>[!-/:-@[-`{-~])/,
  /\*\*(?=\S)(?<strong>[\s\S]*?\S)\*\*(?!\*)/,
  /\*(?=[^\s*])(?<em>[^*]*?[^\s*])\*(?!\*)/,
  /~~(?=\S)(?<del>[\s\S]*?\S)~~/,
  /\[(?<label>[^\]\n]+)\]\((?<target>[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)/,
  /(?<url>https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]}*_])/,
  /(?<br>\n)/,
].map((r) => r.source).join("|"), "g");

function element(name, ...children) {
  const e = document.createElement(name);
  e.append(...children);
  return e;
}

function link(target, ...children) {
  const a = element("a", ...children);
  a.href = target;
  a.target = "_blank";
  a.rel = "noopener noreferrer";
  return a;
}

function isSafe(target) {
  return /^(https?:\/\/|mailto:)/i.test(target);
}

function inlineMatch(m) {
  const g = m.groups;
  if (g.code !== undefined) return element("code", g.code.replace(/^ (.*) $/s, "$1"));
  if (g.escaped !== undefined) return g.escaped;
  if (g.strong !== undefined) return element("strong", ...inline(g.strong));
  if (g.em !== undefined) return element("em", ...inline(g.em));
  if (g.del !== undefined) return element("del", ...inline(g.del));
  if (g.label !== undefined) return isSafe(g.target) ? link(g.target, g.label) : m[0];
  if (g.url !== undefined) return link(g.url, g.url);
  return element("br");
}

function inline(text) {
  if (text.length > LONGEST_INLINE) return [text];
  const out = [];
  let at = 0;
  for (const m of text.matchAll(INLINE)) {
    if (m.index > at) out.push(text.slice(at, m.index));
    out.push(inlineMatch(m));
    at = m.index + m[0].length;
  }
  if (at < text.length) out.push(text.slice(at));
  return out;
}

// ---- blocks: each reader takes the lines from `i` on and returns [element, next line], or null ----

function selectText(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

function copyButton(code) {
  const button = element("button", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {                    // no clipboard without HTTPS, except on this machine
      selectText(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return button;
}

function fence(lines, i) {
  const open = /^( {0,3})(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/.exec(lines[i]);
  if (!open) return null;
  const [, indent, mark, language] = open;
  const body = [];
  const close = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}\\s*$`);
  for (i++; i < lines.length && !close.test(lines[i]); i++)
    body.push(lines[i].replace(new RegExp(`^ {0,${indent.length}}`), ""));
  const code = element("code", body.join("\n"));
  const name = element("span", language);
  name.className = "quiet room";
  const head = element("header", name, copyButton(code));
  const block = element("div", head, element("pre", code));
  block.className = "code";
  return [block, i + 1];
}

function heading(lines, i) {
  const m = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(lines[i]);
  return m && [element(`h${Math.min(m[1].length + 2, 6)}`, ...inline(m[2])), i + 1];   // below the page's own
}

function rule(lines, i) {
  return /^ {0,3}([-*_])( *\1){2,} *$/.test(lines[i]) ? [element("hr"), i + 1] : null;
}

function quote(lines, i) {
  const inner = [];
  for (; i < lines.length && /^ {0,3}>/.test(lines[i]); i++) inner.push(lines[i].replace(/^ {0,3}> ?/, ""));
  return inner.length ? [element("blockquote", ...blocks(inner)), i] : null;
}

const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;

function list(lines, i) {
  const first = ITEM.exec(lines[i]);
  if (!first || first[1].length > 3) return null;
  const ordered = /\d/.test(first[2]);
  const out = element(ordered ? "ol" : "ul");
  if (ordered) out.start = parseInt(first[2], 10);
  while (i < lines.length) {
    const m = ITEM.exec(lines[i]);
    if (!m || m[1].length > 3 || /\d/.test(m[2]) !== ordered) break;
    const indent = m[0].length - (m[3].length > 4 ? m[3].length - 1 : 0);
    const inner = [lines[i].slice(m[0].length)];
    for (i++; i < lines.length; i++) {
      const own = /^ */.exec(lines[i])[0].length;
      const blank = !lines[i].trim();
      if (!blank && own < Math.min(indent, 2)) break;
      if (blank && !/^ {2,}\S/.test(lines[i + 1] ?? "")) break;
      inner.push(lines[i].slice(Math.min(own, indent)));
    }
    while (i < lines.length && !lines[i].trim() && ITEM.test(lines[i + 1] ?? "")) i++;
    const content = blocks(inner);
    const single = content.length && content[0].tagName === "P" ? [...content.shift().childNodes] : [];
    out.append(element("li", ...single, ...content));
  }
  return [out, i];
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((c) => c.trim().replace(/\\\|/g, "|"));
}

function row(kind, line, n) {
  const c = cells(line);
  return element("tr", ...Array.from({ length: n }, (_, k) => element(kind, ...inline(c[k] ?? ""))));
}

function table(lines, i) {
  if (!lines[i].includes("|") || !/^[\s|:-]*-[\s|:-]*$/.test(lines[i + 1] ?? "") || !lines[i + 1].includes("|"))
    return null;
  const n = cells(lines[i]).length;
  const head = element("thead", row("th", lines[i], n));
  const body = element("tbody");
  for (i += 2; i < lines.length && lines[i].includes("|"); i++) body.append(row("td", lines[i], n));
  return [element("table", head, body), i];
}

const READERS = [fence, heading, rule, quote, list, table];

function startsBlock(lines, i) {
  return !lines[i].trim() || /^ {0,3}(`{3,}|~{3,}|#{1,6}\s|>)/.test(lines[i]) || ITEM.test(lines[i]);
}

function paragraph(lines, i) {
  const inner = [lines[i++]];
  while (i < lines.length && !startsBlock(lines, i) && !table(lines, i)) inner.push(lines[i++]);
  return [element("p", ...inline(inner.join("\n"))), i];
}

function blocks(lines) {
  const out = [];
  for (let i = 0; i < lines.length;) {
    if (!lines[i].trim()) {
      i++;
      continue;
    }
    let block = null;
    for (const read of READERS) if ((block = read(lines, i))) break;
    const [e, next] = block ?? paragraph(lines, i);
    out.push(e);
    i = next;
  }
  return out;
}

export function markdown(text) {
  return blocks(text.split(/\r?\n/));
}
