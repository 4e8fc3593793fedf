"""Random schemas of the supported subset, each with a function that makes values of it, and the programs that judge texts
and write them."""
import json
import subprocess

import jsonschema

NAMES = ["a", "b", "ab", "abc", "é", "x y", "q\"", "世", "", "a/b", "~"]
CHARS = "ab \"\\/\n\té世🙂{}[]:,0"
ANNOTATIONS = [{"title": "T"}, {"description": "one \"thing\""}, {"default": None}, {"examples": [1]}, {"$comment": "c"},
               {"x-order": 3}, {"deprecated": False}]


class Program:
    """One of the programs of tests/sample: a line of JSON in, a line out."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def valid(schema, value):
    try:
        jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(value)
        return True
    except jsonschema.ValidationError:
        return False


def text(r, low=0, high=6):
    return "".join(r.choice(CHARS) for _ in range(r.randint(low, high)))


def value(r, depth=2):
    kind = r.randrange(7 if depth else 5)
    if kind == 5:
        return [value(r, depth - 1) for _ in range(r.randint(0, 3))]
    if kind == 6:
        return {r.choice(NAMES): value(r, depth - 1) for _ in range(r.randint(0, 3))}
    return [None, r.random() < 0.5, r.randint(-10**6, 10**6), r.randint(-99, 99) / 8, text(r)][kind]


def regex(r, depth=3):
    """A regular expression that means the same to Python and to ECMA 262, and a function that makes a text of it."""
    kind = r.randrange(8 if depth else 4)
    if kind == 0:
        c = r.choice("ab01_é世 /")
        return c, lambda: c
    if kind == 1:
        low, high = sorted(r.sample("abcdefgh", 2))
        return f"[{low}-{high}_]", lambda: r.choice([low, high, "_"])
    if kind == 2:
        word, of = r.choice([(r"\d", "059"), (r"\w", "aZ0_"), (".", "a\"\\é🙂"), (r"\.", "."), ("[^a-y]", "z\\\"\n世"), (r"\s", " \t\n"),
                             (r"\u00e9", "é"), (r"\x41", "A")])
        return word, lambda: r.choice(of)
    if kind == 3:
        word = "".join(r.choice("abcxyz-") for _ in range(r.randint(1, 5)))
        return word, lambda: word
    one, make = regex(r, depth - 1)
    if kind == 4:
        other, make_other = regex(r, depth - 1)
        return f"({one}|{other})", lambda: r.choice([make, make_other])()
    if kind == 5:
        low = r.randint(0, 3)
        high = low + r.randint(0, 4)
        times = r.choice([f"{{{low},{high}}}", f"{{{low},}}", "*" if low == 0 else "+", "?" if low == 0 and high > 0 else f"{{{low},{high}}}"])
        most = 1 if times == "?" else high if "," in times else max(low, 1)
        least = 1 if times == "+" else low
        return f"(?:{one}){times}{r.choice(['', '', '?'])}", lambda: "".join(make() for _ in range(r.randint(min(least, most), most)))
    other, make_other = regex(r, depth - 1)
    return one + other, lambda: make() + make_other()


FORMATS = {
    "date": lambda r: f"{r.randint(1000, 9999)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}",
    "date-time": lambda r: f"2024-02-29T{r.randint(0, 23):02}:59:07{r.choice(['', '.5', '.123456'])}{r.choice(['Z', '+05:30'])}",
    "time": lambda r: f"{r.randint(0, 23):02}:00:59{r.choice(['Z', '-01:00'])}",
    "uuid": lambda r: "".join(c if c == "-" else r.choice("0123456789abcdef") for c in "00000000-0000-0000-0000-000000000000"),
    "duration": lambda r: r.choice(["P1Y", "P3W", "PT1H30M", "P1DT12H", "P2Y6M3DT1S"]),
    "email": lambda r: r.choice(["a@b.co", "first.last@some.example.org"]),
    "hostname": lambda r: r.choice(["localhost", "a.b-c.example"]),
    "ipv4": lambda r: ".".join(str(r.randint(0, 255)) for _ in range(4)),
    "ipv6": lambda r: ":".join(f"{r.randint(0, 65535):x}" for _ in range(8)),
    "uri": lambda r: r.choice(["https://a.example/b?c=d#e", "ftp://host/x%20y"]),
}


def string(r):
    kind = r.randrange(4)
    if kind == 0:
        low, high = sorted(r.sample(range(0, 8), 2))
        return {"type": "string", "minLength": low, "maxLength": high}, lambda: text(r, low, high)
    if kind == 1:
        name = r.choice(list(FORMATS))
        return {"type": "string", "format": name}, lambda: FORMATS[name](r)
    one, make = regex(r)
    begin, end = r.choice([("^", "$"), ("^", "$"), ("^", "$"), ("", "$"), ("^", ""), ("", "")])
    if kind == 2:
        return {"type": "string", "pattern": begin + "(" + one + ")" + end}, make
    examples = [make() for _ in range(3)]
    low, high = min(map(len, examples)), max(map(len, examples))
    return {"type": "string", "pattern": begin + "(" + one + ")" + end, "minLength": low, "maxLength": high}, lambda: r.choice(examples)


def number(r):
    kind = r.randrange(4)
    if kind == 0:
        return {"type": "number"}, lambda: r.choice([r.randint(-9999, 9999), r.uniform(-5, 5), 1e-7, 2.5e20])
    if kind == 1:
        low = r.choice([-10**12, -128, -7, 0, 3, 95, 10**5])
        high = low + r.choice([0, 1, 9, 80, 905, 10**7])
        word, up = ("minimum", 0) if r.random() < 0.5 else ("exclusiveMinimum", 1)
        return {"type": "integer", word: low - up, "maximum": high}, lambda: r.randint(low, high)
    low = r.choice([-1000.5, -3.25, -0.001, 0, 0.125, 1, 99.99, 12345])
    high = low + r.choice([0.25, 1, 9.5, 250, 10**6])
    word = r.choice(["minimum", "exclusiveMinimum"])
    if kind == 2:
        return {"type": "number", word: low}, lambda: round(low + r.choice([0.125, 1, 3.75, 10**4]), 3)
    return {"type": "number", word: low, r.choice(["maximum", "exclusiveMaximum"]): high}, \
        lambda: round(low + (high - low) * r.choice([0.25, 0.5, 0.75]), 6)


def array(r, depth):
    item, make = schema(r, depth - 1)
    low = r.randint(0, 2)
    high = low + r.randint(0, 2)
    if r.random() < 0.6:
        return {"type": "array", "items": item, "minItems": low, "maxItems": high}, \
            lambda: [make() for _ in range(r.randint(low, high))]
    parts = [schema(r, depth - 1) for _ in range(r.randint(1, 3))]
    rest = r.choice([False, item])
    n = len(parts)

    def tuple_of():
        out = [p[1]() for p in parts][:r.randint(min(low, n), n)]
        return out + [make() for _ in range(r.randint(0, 2))] if rest is not False and len(out) == n else out
    return {"type": "array", "prefixItems": [p[0] for p in parts], "items": rest, "minItems": min(low, n)}, tuple_of


def plain_object(r, depth, names):
    members = {n: schema(r, depth - 1) for n in names}
    required = [n for n in names if r.random() < 0.6]
    extra = schema(r, depth - 1) if r.random() < 0.3 else None

    def make():
        out = {n: members[n][1]() for n in names if n in required or r.random() < 0.5}
        for _ in range(r.randint(0, 2) if extra else 0):
            name = r.choice(["z", "abx", "other name", "zé"])
            if name not in members:
                out[name] = extra[1]()
        return out
    return {"type": "object", "properties": {n: members[n][0] for n in names}, "required": required,
            "additionalProperties": extra[0] if extra else False}, make


def tagged(r, depth):
    """oneOf of objects that a required constant tells apart."""
    kinds = r.sample(["x", "y", "z", "é"], r.randint(1, 3))
    parts = [(k, schema(r, depth - 1)) for k in kinds]

    def make():
        kind, part = r.choice(parts)
        return {"kind": kind, "v": part[1]()}
    return {"oneOf": [{"type": "object", "properties": {"kind": {"const": k}, "v": p[0]}, "required": ["kind", "v"],
                       "additionalProperties": False} for k, p in parts]}, make


def all_of(r, depth):
    """allOf of objects with members of their own, and one that both speak of."""
    one, other = schema(r, depth - 1), schema(r, depth - 1)
    return {"allOf": [{"type": "object", "properties": {"l": one[0], "n": {"type": "integer", "minimum": 3}}, "required": ["l"]},
                      {"properties": {"n": {"maximum": 9}, "r": other[0]}, "required": ["n"]}]}, \
        lambda: {"l": one[1](), "n": r.randint(3, 9), **({"r": other[1]()} if r.random() < 0.5 else {})}


def beside(r, depth):
    """anyOf beside other keywords."""
    one, other = schema(r, depth - 1), schema(r, depth - 1)
    return {"type": "object", "properties": {"p": one[0], "q": other[0]}, "additionalProperties": False,
            "anyOf": [{"required": ["p"]}, {"required": ["q"]}]}, \
        lambda: r.choice([lambda: {"p": one[1]()}, lambda: {"q": other[1]()}, lambda: {"p": one[1](), "q": other[1]()}])()


def schema(r, depth=3):
    """A schema, and a function that makes a value of it."""
    kind = r.randrange(16 if depth else 7)
    if kind in (0, 1):
        s, make = string(r)
    elif kind in (2, 3):
        s, make = number(r)
    elif kind == 4:
        listed = [value(r) for _ in range(r.randint(1, 4))]
        s, make = ({"enum": listed} if r.random() < 0.7 else {"const": listed[0]}), None
        make = lambda: r.choice(listed if "enum" in s else listed[:1])  # noqa: E731
    elif kind == 5:
        s, make = {"type": ["boolean", "null"]}, lambda: r.choice([True, False, None])
    elif kind == 6:
        return r.choice([True, {}]), lambda: value(r)
    elif kind in (7, 8):
        s, make = array(r, depth)
    elif kind == 9:
        parts = [schema(r, depth - 1) for _ in range(r.randint(1, 3))]
        s, make = {"anyOf": [p[0] for p in parts]}, lambda: r.choice(parts)[1]()
    elif kind == 10:
        s, make = tagged(r, depth)
    elif kind == 11:
        s, make = all_of(r, depth)
    elif kind == 12:
        s, make = beside(r, depth)
    else:
        s, make = plain_object(r, depth, r.sample(NAMES, r.randint(0, 4)))
    if r.random() < 0.3:
        s = {**s, **r.choice(ANNOTATIONS)}
    return s, make


def recursive(r):
    """A schema whose definition leads back to itself, in one of the ways that people write."""
    inner, make = schema(r, 1)

    def node(depth=3):
        return {"v": make(), "next": node(depth - 1) if depth and r.random() < 0.6 else None}

    def tree(depth=3):
        return {"v": make(), "kids": [tree(depth - 1) for _ in range(r.randint(0, 2) if depth else 0)]}
    if r.random() < 0.5:
        definition = {"type": "object", "properties": {"v": inner, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
                      "required": ["v", "next"], "additionalProperties": False}
        return {"$ref": "#/$defs/n", "$defs": {"n": definition}}, node
    definition = {"type": "object", "properties": {"v": inner, "kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                  "required": ["v", "kids"], "additionalProperties": False}
    return {"allOf": [{"$ref": "#/$defs/n"}], "$defs": {"n": definition}}, tree


def any_schema(r):
    return recursive(r) if r.random() < 0.15 else schema(r)
