// The chat: one conversation, kept in this browser.
import { markdown } from "./markdown.js";
import { ServerError, chat, getJson } from "./stream.js";

const $ = (id) => document.getElementById(id);
const log = $("log"), input = $("input"), fields = $("fields").elements, status = $("status");
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "presence_penalty", "max_tokens", "seed"];

let messages = [];          // {role, content, reasoning, note, error}
let contextLength = 0;
let running = null;         // AbortController of the answer that streams

// ---- kept in the browser ----

function load() {
  try {
    messages = JSON.parse(localStorage.getItem("lily.messages")) ?? [];
    const settings = JSON.parse(localStorage.getItem("lily.settings")) ?? { think: true };
    fields.system.value = settings.system ?? "";
    fields.think.checked = settings.think;
    for (const name of NUMBERS) fields[name].value = settings[name] ?? "";
    fields.key.value = sessionStorage.getItem("lily.key") ?? "";
  } catch {
    messages = [];          // another version's, or storage is off: begin anew
  }
}

function save() {
  const settings = { system: fields.system.value, think: fields.think.checked };
  for (const name of NUMBERS) settings[name] = fields[name].value;
  try {
    localStorage.setItem("lily.messages", JSON.stringify(messages));
    localStorage.setItem("lily.settings", JSON.stringify(settings));
    sessionStorage.setItem("lily.key", fields.key.value);
  } catch {
    status.textContent = "This browser's storage is full or off: a reload will lose the conversation.";
  }
}

// ---- what is shown ----

function element(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function button(text, action) {
  const b = element("button", "", text);
  b.type = "button";
  b.addEventListener("click", action);
  return b;
}

// A message's element; `update` shows what it has by now.
function messageView(m) {
  const view = element("article", `message ${m.role}`);
  view.setAttribute("aria-label", m.role === "user" ? "You" : "Lily");
  const body = element("div", "body"), foot = element("footer");
  const thinking = element("details", "thinking"), thought = element("div");
  thinking.append(element("summary", "", "Thinking"), thought);
  view.append(thinking, body, foot);
  const note = element("span", "quiet"), error = element("span", "error");
  error.setAttribute("role", "alert");
  foot.append(note, error);

  function update(streaming) {
    thinking.hidden = !m.reasoning;
    thought.textContent = m.reasoning ?? "";
    thinking.firstChild.textContent = streaming && !m.content ? "Thinking …" : "Thinking";
    if (m.role === "user") body.textContent = m.content;
    else body.replaceChildren(...markdown(m.content));
    note.textContent = m.note ?? "";
    error.textContent = m.error ?? "";
  }
  update(false);
  return { view, foot, update };
}

function show() {
  log.replaceChildren();
  for (const m of messages) log.append(messageView(m).view);
  offerAgain();
  log.scrollTop = log.scrollHeight;
}

// The last answer can be asked for again.
function offerAgain() {
  for (const b of log.querySelectorAll("button.again")) b.remove();
  if (running || messages.at(-1)?.role !== "assistant") return;
  const b = button("Regenerate", regenerate);
  b.classList.add("again");
  log.lastElementChild.querySelector(":scope > footer").append(b);
}

function showContext(used) {
  if (!contextLength) return;
  $("context").value = used / contextLength;
  $("context-text").textContent = `${used.toLocaleString()} / ${contextLength.toLocaleString()}`;
}

function setRunning(controller) {
  running = controller;
  $("stop").hidden = !running;
  $("send").hidden = !!running;
  log.setAttribute("aria-busy", String(!!running));    // a screen reader reads the answer when it is whole
}

// ---- one answer ----

function request() {
  const history = messages.map(({ role, content, reasoning }) =>
    reasoning ? { role, content, reasoning_content: reasoning } : { role, content });
  const system = fields.system.value.trim();
  if (system) history.unshift({ role: "system", content: system });
  const q = { messages: history, chat_template_kwargs: { enable_thinking: fields.think.checked } };
  for (const name of NUMBERS) if (fields[name].value !== "") q[name] = Number(fields[name].value);
  return q;
}

function takeChunk(m, chunk) {
  const choice = chunk.choices?.[0], progress = chunk.prompt_progress, used = chunk.usage;
  if (progress) status.textContent = `Reading the prompt: ${progress.processed} of ${progress.total} tokens`;
  if (choice?.delta?.reasoning_content) m.reasoning = (m.reasoning ?? "") + choice.delta.reasoning_content;
  if (choice?.delta?.content) m.content += choice.delta.content;
  if (choice?.finish_reason === "length") m.note = "Cut at the limit of tokens. ";
  if (chunk.timings?.predicted_ms > 0)
    m.rate = (1000 * chunk.timings.predicted_n / chunk.timings.predicted_ms).toFixed(1);
  if (used) {
    const cached = used.prompt_tokens_details?.cached_tokens ?? 0;
    m.note = `${m.note ?? ""}${used.completion_tokens} tokens` + (m.rate ? `, ${m.rate} a second` : "") +
      `; prompt ${used.prompt_tokens}` + (cached ? `, ${cached} of them reused` : "");
    showContext(used.total_tokens);
  }
}

function explain(m, e) {
  if (e.name === "AbortError") {
    m.note = "Stopped.";
  } else if (e instanceof ServerError) {
    m.error = e.message;
    if (e.status === 401) $("settings").showModal();
  } else {
    m.error = "The server cannot be reached.";
  }
}

async function answer() {
  const q = request();
  const m = { role: "assistant", content: "" };
  messages.push(m);
  const { view, update } = messageView(m);
  log.append(view);
  setRunning(new AbortController());
  offerAgain();
  status.textContent = "Waiting for the model";

  // Follow the end unless the reader has scrolled away from it; draw once a frame at most.
  let drawing = 0;
  const draw = () => {
    drawing = 0;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    update(true);
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
  log.scrollTop = log.scrollHeight;
  try {
    for await (const chunk of chat(q, fields.key.value, running.signal)) {
      takeChunk(m, chunk);
      if (m.content || m.reasoning) status.textContent = "";
      drawing ||= requestAnimationFrame(draw);
    }
  } catch (e) {
    explain(m, e);
  }
  cancelAnimationFrame(drawing);
  draw();
  update(false);
  setRunning(null);
  status.textContent = "";
  offerAgain();
  save();
  input.focus();
}

function send() {
  const text = input.value;
  if (running || !text.trim()) return;
  input.value = "";
  fit();
  messages.push({ role: "user", content: text });
  log.append(messageView(messages.at(-1)).view);
  save();
  answer();
}

function regenerate() {
  if (running) return;
  messages.pop();
  log.lastElementChild.remove();
  answer();
}

// ---- controls ----

function fit() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight + 2}px`;
}

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  send();
});
input.addEventListener("input", fit);
input.addEventListener("keydown", (e) => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  send();
});
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape" && running && !$("settings").open) running.abort();
});
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", () => {
  if (messages.length && !confirm("Forget this conversation?")) return;
  running?.abort();
  messages = [];
  save();
  show();
  showContext(0);
  input.focus();
});
$("settings-button").addEventListener("click", () => $("settings").showModal());
$("settings").addEventListener("close", () => {
  save();
  describe();
});

// ---- what the server says of itself ----

async function describe() {
  const key = fields.key.value;
  try {
    const model = (await getJson("v1/models", key)).data[0];
    $("model").textContent = model.id;
    contextLength = model.context_length;
    $("context-text").textContent ||= `0 / ${contextLength.toLocaleString()}`;
    const defaults = (await getJson("props", key)).default_generation_settings;
    for (const name of NUMBERS) if (defaults[name] !== undefined) fields[name].placeholder = defaults[name];
    status.textContent = "";
  } catch (e) {
    status.textContent = e instanceof ServerError ? e.message : "The server cannot be reached.";
    if (e.status === 401) $("settings").showModal();
    if (e.status === 503) setTimeout(describe, 2000);    // still loading
  }
}

load();
show();
describe();
