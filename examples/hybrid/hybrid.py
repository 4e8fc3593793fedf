#!/usr/bin/env python3
"""A cloud model works on a task and leaves the private files to Lily.

    hybrid.py --gateway http://127.0.0.1:4000/v1 --key KEY --folder ~/records "What did I spend on heating last year?"

The cloud model sees the task, the names of the files, and the answers that Lily gives to its questions; never the
files.  What Lily answers does go to the cloud: --show prints each answer first and asks whether it may.
docs/hybrid.md says how to set up the gateway; this program needs the package openai alone.
"""
import argparse
import json
import pathlib
import sys

MOST_ROUNDS = 8
MOST_BYTES = 64 * 1024      # of one file

TOOLS = [{
    "type": "function",
    "function": {
        "name": "ask_private",
        "description": "Asks a private assistant on the user's machine about the user's files. It reads the named "
                       "files and answers the question in a few words. You cannot see the files yourself.",
        "parameters": {
            "type": "object",
            "properties": {
                "files": {"type": "array", "items": {"type": "string"}, "description": "names from the list"},
                "question": {"type": "string", "description": "one question that the files can answer"},
            },
            "required": ["files", "question"],
            "additionalProperties": False,
        },
    },
}]

PRIVATE_RULE = ("You answer a question about the files below for someone who must not see them. Give the answer alone, "
                "as short as it can be. Leave out names, numbers of accounts and whatever the question did not ask for.")


def read_files(folder, names):
    """The named files as text; a name that is not a plain file of the folder is refused."""
    known = {p.name: p for p in folder.iterdir() if p.is_file() and not p.is_symlink()}
    unknown = [n for n in names if n not in known]
    if unknown:
        raise ValueError(f"there is no file {unknown[0]!r}")
    return "\n\n".join(f"## {n}\n\n{known[n].read_bytes()[:MOST_BYTES].decode('utf-8', 'replace')}" for n in names)


def ask_private(client, folder, files, question):
    text = read_files(folder, files)
    reply = client.chat.completions.create(
        model="lily", extra_body={"chat_template_kwargs": {"enable_thinking": False}},
        messages=[{"role": "system", "content": PRIVATE_RULE},
                  {"role": "user", "content": f"{text}\n\n# Question\n\n{question}"}])
    return reply.choices[0].message.content.strip()


def may_go(answer):
    print(f"Lily's answer:\n{answer}", file=sys.stderr)
    return input("Send it to the cloud model? [y/N] ").strip().lower() == "y"


def run_call(client, folder, call, show):
    """The result of one tool call, as text for the cloud model."""
    try:
        arguments = json.loads(call.function.arguments)
        answer = ask_private(client, folder, arguments["files"], arguments["question"])
    except (ValueError, KeyError, TypeError) as e:
        return f"error: {e}"
    return answer if not show or may_go(answer) else "error: the user keeps this answer private"


def solve(client, folder, task, show=False):
    names = sorted(p.name for p in folder.iterdir() if p.is_file() and not p.is_symlink())
    messages = [{"role": "system", "content": "Files on the user's machine, which only ask_private can read:\n" +
                                              "\n".join(names)},
                {"role": "user", "content": task}]
    for _ in range(MOST_ROUNDS):
        message = client.chat.completions.create(model="cloud", messages=messages, tools=TOOLS).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id,
                             "content": run_call(client, folder, call, show)})
    raise RuntimeError(f"no answer after {MOST_ROUNDS} rounds of questions")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--gateway", default="http://127.0.0.1:4000/v1", help="address of the gateway")
    parser.add_argument("--key", default="none", help="key of the gateway")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="folder with the private files")
    parser.add_argument("--show", action="store_true", help="ask before an answer of Lily's goes to the cloud model")
    options = parser.parse_args()
    folder = options.folder.expanduser()
    if not folder.is_dir():
        parser.error(f"{folder} is no folder")
    try:
        from openai import OpenAI, OpenAIError
    except ImportError:
        sys.exit("hybrid.py: the package openai is missing: pip install openai, in a virtual environment")
    client = OpenAI(base_url=options.gateway, api_key=options.key, timeout=3600)
    try:
        print(solve(client, folder, options.task, options.show))
    except (OpenAIError, RuntimeError) as e:
        sys.exit(f"hybrid.py: {options.gateway}: {e}")


if __name__ == "__main__":
    main()
