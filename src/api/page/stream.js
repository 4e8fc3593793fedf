// One chat request to this server, its events as they arrive.

export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function headers(key) {
  return key ? { "Content-Type": "application/json", Authorization: `Bearer ${key}` }
             : { "Content-Type": "application/json" };
}

async function refused(response) {
  let message = `The server answered with status ${response.status}.`;
  try {
    message = (await response.json()).error.message;
  } catch { /* not the API's own error: the status must do */ }
  return new ServerError(response.status, message);
}

// The data of server-sent events, comments left out.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const whole = rest.split("\n\n");
    rest = whole.pop();
    for (const event of whole)
      for (const line of event.split("\n")) if (line.startsWith("data: ")) yield line.slice(6);
  }
}

export async function getJson(path, key) {
  const response = await fetch(path, { headers: headers(key) });
  if (!response.ok) throw await refused(response);
  return response.json();
}

// Yields the chunks of /v1/chat/completions.
export async function* chat(request, key, signal) {
  const response = await fetch("v1/chat/completions", {
    method: "POST", headers: headers(key), signal,
    body: JSON.stringify({ ...request, stream: true, return_progress: true, stream_options: { include_usage: true } }),
  });
  if (!response.ok) throw await refused(response);
  let finished = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") {
      finished = true;
      continue;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(0, chunk.error.message);
    yield chunk;
  }
  if (!finished) throw new ServerError(0, "The connection ended before the answer did.");
}
