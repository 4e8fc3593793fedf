#!/bin/sh
# Starts the server on the demo model, asks one question, shows the streamed answer and its speed, stops.
set -eu
lily=${1:?usage: demo.sh PATH_TO_LILY}
question="What is the capital of France?"
log=$(mktemp)
pid=""
finish() {
    [ -z "$pid" ] || { kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null || true; }
    rm -f "$log" "$log.sse"
}
trap finish EXIT INT TERM

"$lily" serve --port 0 2>"$log" &
pid=$!
url=""
for _ in $(seq 300); do
    url=$(sed -n 's/.* on \(http:[^ ]*\).*/\1/p' "$log")
    if [ -n "$url" ] && curl -fsS "$url/health" >/dev/null 2>&1; then break; fi
    kill -0 "$pid" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
done

echo "lily serve: $url"
echo "> $question"
jq -n --arg q "$question" '{model: "demo", stream: true, temperature: 0, messages: [{role: "user", content: $q}],
  chat_template_kwargs: {enable_thinking: false}}' |
    curl -fsSN "$url/v1/chat/completions" -H 'content-type: application/json' -d @- |
    sed -u -n 's/^data: {/{/p' | tee "$log.sse" |
    jq --unbuffered -j '.choices[0].delta.content // empty'
echo
jq -rs 'map(.timings // empty) | last | "\(.predicted_n) tokens, \(.predicted_n / .predicted_ms * 1000 | floor) tok/s; prompt of \(.prompt_n) tokens in \(.prompt_ms | floor) ms"' "$log.sse"
