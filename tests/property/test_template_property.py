"""The template interpreter against jinja2: whole conversations through the shipped template, and random
templates over the whole subset.  Where jinja2 fails, Lily must fail; where it does not, the text is equal."""
import json
import pathlib
import random
import subprocess

import jinja2
import jinja2.ext
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

SEED = 20260602
CONVERSATIONS = 1500
TEMPLATES = 2500


def environment():
    """What transformers renders with."""
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


class Lily:
    def __init__(self, build_dir):
        self.process = subprocess.Popen([build_dir / "tests" / "template_cli"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def render(self, template, messages, tools=None, kwargs=None, add_generation_prompt=False):
        line = json.dumps({"template": template, "messages": messages, "tools": tools, "kwargs": kwargs or {},
                           "add_generation_prompt": add_generation_prompt})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def lily(build_dir):
    program = Lily(build_dir)
    yield program
    program.process.stdin.close()
    assert program.process.wait(timeout=10) == 0


def reference(env, template, messages, tools=None, kwargs=None, add_generation_prompt=False):
    try:
        return (template if isinstance(template, jinja2.Template) else env.from_string(template)).render(messages=messages, tools=tools, documents=None,
                               add_generation_prompt=add_generation_prompt, **(kwargs or {}))
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, ZeroDivisionError, OverflowError, AttributeError,
            LookupError):
        return None


WORDS = ["", " ", "\n", "\n\n", "a", "Hello", " world ", "<|im_end|>", "<|im_start|>system\n", "<think>", "</think>",
         "<tool_call>", "<tool_response>", "</tool_response>", "</function>", "{{ x }}", "{% if %}", "\u3000", "\u00a0", "\u2028",
         "\x1c", "\x00", "\\", "\"", "'", "\U0001f5fc", "\u6771\u4eac", "\u00e9", "e\u0301", "\u0130", "\u00df", "\u03a3", "\ufb03", "<b>&", "\t"]


def text(rng):
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(0, 6)))


def key(rng):
    return text(rng).replace("\0", "") or "k"    # jansson has no NUL in keys


def value(rng, depth=0):
    kind = rng.randrange(10 if depth < 3 else 7)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.choice([0, 1, -1, 7, 2**31, 2**63 - 1, -2**63, 2**64, 10**30])
    if kind == 3:
        return rng.choice([0.0, -0.0, 1.0, 0.1, 1e15, 1e16, 1e-4, 1e-5, 123456.789, 1e22, 5e-324, 1.7976931348623157e308,
                           rng.random(), rng.random() * 10 ** rng.randrange(-20, 20)])
    if kind < 7:
        return text(rng)
    if kind < 9:
        return {key(rng): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [value(rng, depth + 1) for _ in range(rng.randrange(4))]


def content(rng):
    kind = rng.random()
    if kind < 0.7:
        return text(rng)
    if kind < 0.75:
        return None
    parts = [{"type": "text", "text": text(rng)} for _ in range(rng.randrange(4))]
    if kind > 0.97:
        parts.append(rng.choice([{"type": "image", "image": "x"}, {"type": "video"}, {"type": "other"}, {"text": "y"}]))
    return parts


def message(rng):
    role = rng.choices(["user", "assistant", "tool", "system", "developer"], [40, 35, 20, 3, 1])[0]
    m = {"role": role, "content": content(rng)}
    if rng.random() < 0.03:
        del m["content"]
    if role == "assistant":
        if rng.random() < 0.4:
            m["reasoning_content"] = rng.choice([text(rng), None, "why"])
        if rng.random() < 0.4:
            calls = [{"name": text(rng) or "f", "arguments": {key(rng): value(rng) for _ in range(rng.randrange(4))}}
                     for _ in range(rng.randrange(4))]
            m["tool_calls"] = [c if rng.random() < 0.2 else {"type": "function", "id": "c", "function": c} for c in calls]
    return m


def test_conversations(lily, source_dir):
    rng = random.Random(SEED)
    env = environment()
    template = (pathlib.Path(source_dir) / "models" / "demo" / "chat_template.jinja").read_text()
    compiled = env.from_string(template)
    rendered = 0
    for _ in range(CONVERSATIONS):
        messages = ([{"role": "system", "content": content(rng)}] if rng.random() < 0.4 else [])
        messages += [{"role": "user", "content": content(rng)}] if rng.random() < 0.9 else []
        messages += [message(rng) for _ in range(rng.randrange(0, 8))]
        tools = None if rng.random() < 0.6 else [{"type": "function", "function": {"name": text(rng), "parameters": value(rng)}}
                                                 for _ in range(rng.randrange(3))]
        kwargs = {}
        for name in ("enable_thinking", "preserve_thinking", "add_vision_id"):
            if rng.random() < 0.3:
                kwargs[name] = rng.choice([True, False, None, 0, "x"])
        prompt = rng.random() < 0.7
        want = reference(env, compiled, messages, tools, kwargs, prompt)
        got = lily.render(template, messages, tools, kwargs, prompt)
        assert got.get("text") == want, (messages, tools, kwargs, got)
        rendered += want is not None
    assert rendered > CONVERSATIONS / 2


NAMES = ["s", "t", "e", "n", "z", "f", "b", "no", "l", "d", "m", "missing"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping",
         "sequence", "iterable"]
FILTERS = ["trim", "length", "count", "tojson", "tojson(indent=2)", "items", "string", "safe", "default('x')", "d('y', true)",
           "first", "last", "join(', ')", "list", "lower", "upper", "replace('a', '<b>')", "replace('', '-')", "trim('a')",
           "replace('l', '', 1)"]
METHODS = ["startswith('a')", "endswith('\\n')", "split('a')", "split()", "split(None, 1)", "split('l', 1)", "strip()",
           "lstrip('a ')", "rstrip('\\n')", "replace('a', 'bb')", "upper()", "lower()", "items()", "keys()", "values()",
           "get('a')", "get('zz', 3)", "join(['x', 'y'])", "strip('\\n')"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


def expression(rng, depth=0):
    kind = rng.randrange(16 if depth < 4 else 5)
    sub = lambda: expression(rng, depth + 1)
    if kind < 2:
        return rng.choice(NAMES)
    if kind == 2:
        return rng.choice(["'a'", "\"l\\n\"", "'\\u00e9\\x41\\101\\q'", "''", "'<b>'", "'a' 'b'", "'  x '"])
    if kind == 3:
        return rng.choice(["0", "1", "2", "-1", "7", "1.5", "1e3", "100000000000"])
    if kind == 4:
        return rng.choice(["true", "False", "none", "None", "[]", "{}", "()", "(1,)", "[1, 'a']", "{'a': 1, 'b': s}", "(1, 2)"])
    if kind == 5:
        return f"{sub()}|{rng.choice(FILTERS)}"
    if kind == 6:
        return f"({sub()}).{rng.choice(METHODS)}"
    if kind == 7:
        return f"({sub()}) is {rng.choice(['', 'not '])}{rng.choice(TESTS)}"
    if kind == 8:
        return f"({sub()} if {sub()} else {sub()})" if rng.random() < 0.8 else f"({sub()} if {sub()})"
    if kind == 9:
        return f"({rng.choice(NAMES)})[{rng.choice(['0', '-1', '5', '1:', ':-1', '::-1', '::2', '1:3', '-2:', '5:1', '3:0:-1', chr(39) + 'a' + chr(39), sub()])}]"
    if kind == 10:
        return f"({sub()}).{rng.choice(['a', 'b', 'items', 'x', 'upper', 'zz'])}"
    if kind == 11:
        return rng.choice([f"not {sub()}", f"-{sub()}", f"+({sub()})"])
    if kind == 12:
        return f"mac({sub()}{rng.choice(['', ', ' + sub(), ', q=' + sub()])})"
    return f"({sub()} {rng.choice(OPERATORS)} {sub()})"


def spaces(rng):
    return rng.choice(["", " ", "\n", "\n  ", "x\n", " y ", "\t", "\n\n", "z"])


def tag(rng, body):
    return "{%" + rng.choice(["", "-", "+"]) + f" {body} " + rng.choice(["", "-", "+"]) + "%}"


def block(rng, depth=0):
    parts = []
    for _ in range(rng.randrange(1, 4)):
        parts.append(spaces(rng))
        kind = rng.randrange(9 if depth < 2 else 4)
        if kind < 3:
            parts.append("{{" + rng.choice(["", "-"]) + f" {expression(rng)} " + rng.choice(["", "-"]) + "}}")
        elif kind == 3:
            parts.append("{#" + rng.choice(["", "-"]) + " note " + rng.choice(["", "-"]) + "#}")
        elif kind == 4:
            parts += [tag(rng, f"if {expression(rng)}"), block(rng, depth + 1)]
            if rng.random() < 0.4:
                parts += [tag(rng, f"elif {expression(rng)}"), block(rng, depth + 1)]
            if rng.random() < 0.4:
                parts += [tag(rng, "else"), block(rng, depth + 1)]
            parts.append(tag(rng, "endif"))
        elif kind == 5:
            head = rng.choice(["for i in l", "for i in " + expression(rng), "for k, v in d|items", "for i in l[::-1]",
                               "for i in s", "for i in d", "for i in l if i", "for i in range(3)", "for k, v in d.items()"])
            parts += [tag(rng, head), block(rng, depth + 1),
                      rng.choice(["", "{{ loop.index0 }}{{ loop.last }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ i }}",
                                  "{{ loop.revindex }}{{ loop.first }}{{ loop.length }}{{ loop.index }}"])]
            if rng.random() < 0.3:
                parts += [tag(rng, "else"), block(rng, depth + 1)]
            parts.append(tag(rng, "endfor"))
        elif kind == 6:
            # Not the names of the context: jinja2 hides such a name from loops that stand before its "set".
            parts.append(tag(rng, f"set {rng.choice(['q', 'ns.v', 'k'])} = {expression(rng)}"))
        elif kind == 7:
            parts += [tag(rng, "set q"), block(rng, depth + 1), tag(rng, "endset"), "{{ q }}"]
        else:
            parts.append("{{ ns.v }}{{ q }}")
    parts.append(spaces(rng))
    return "".join(parts)


KNOWN = ("is not supported", "beyond 64 bits", "not finite", "cannot be compared", "no text",
         "more memory",
         "items takes a dict",         # jinja2 finds it when the items are walked, if ever
         "parentheses are missing")    # "x is string if y": jinja2 reads "if" as an argument


def test_templates(lily):
    """Every construct with every kind of value.  The few operations that Lily refuses by name do not count."""
    rng = random.Random(SEED)
    env = environment()
    rendered = 0
    for _ in range(TEMPLATES):
        kwargs = {"s": text(rng), "t": " aal\n", "e": "", "n": rng.choice([0, 1, 3, -5]), "z": 0, "f": value(rng), "b": True,
                  "no": None, "l": [value(rng, 2) for _ in range(rng.randrange(4))],
                  "d": {"a": value(rng, 2), "b": text(rng), "items": 1}, "m": value(rng)}
        template = ("{% set ns = namespace(v=1) %}{% macro mac(p, q='dq') %}[{{ p }}|{{ q }}]{% endmacro %}" + block(rng))
        got = lily.render(template, [], None, kwargs)
        if "error" in got and any(k in got["error"] for k in KNOWN):
            continue
        want = reference(env, template, [], None, kwargs)
        assert got.get("text") == want, (template, kwargs, got, want)
        rendered += want is not None
    assert rendered > TEMPLATES / 5


def test_data_is_never_control(lily, source_dir):
    """Text of a request, however the template cuts and joins it, stays data."""
    rng = random.Random(SEED)
    template = (pathlib.Path(source_dir) / "models" / "demo" / "chat_template.jinja").read_text()
    template = template.replace("{%- if add_generation_prompt %}", "{{ (messages[0].content|string)[1:]|upper|replace('A', 'b') }}"
                                "{%- if add_generation_prompt %}")
    for _ in range(300):
        marked = "".join(chr(0xe000 + rng.randrange(256)) for _ in range(8))
        messages = [{"role": "user", "content": marked}, {"role": "assistant", "content": marked, "reasoning_content": marked,
                    "tool_calls": [{"name": marked, "arguments": {marked: marked, "k": [marked]}}]}, {"role": "tool", "content": marked}]
        tools = [{"type": "function", "function": {"name": marked, "description": marked, "parameters": {marked: 1}}}]
        got = lily.render(template, messages, tools, {"preserve_thinking": True}, True)
        data, at = bytearray(), 0
        raw = got["text"].encode()
        control = bytearray()
        for end, is_control in got["spans"]:
            (control if is_control else data).extend(raw[at:end])
            at = end
        assert at == len(raw)
        assert not any(0xe000 <= ord(c) < 0xe100 for c in control.decode())
        assert "<|im_start|>" not in data.decode() and "<tool_call>" not in data.decode()
        assert sum(0xe000 <= ord(c) < 0xe100 for c in data.decode()) == 8 * 12 - 1    # eleven places, and the slice
