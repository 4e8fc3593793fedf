"""What a case comes to: Fail and Skip, and the comparisons that raise them."""

import json
import re


class Fail(Exception):
    def __init__(self, expected, seen, where=""):
        super().__init__(f"{where + ': ' if where else ''}expected {short(expected)}, seen {short(seen)}")


class Skip(Exception):
    pass


def short(v, n=300):
    s = v if isinstance(v, str) else json.dumps(v, ensure_ascii=False, default=str)
    return s if len(s) <= n else s[: n // 2] + " … " + s[-n // 2 :]


def same(a, b):
    """Equality with strict types: 1 is not 1.0 is not true."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def test(ok, expected, seen, where=""):
    if not ok:
        raise Fail(expected, seen, where)


def within(v, c, where=""):
    test(v is not None and not isinstance(v, str), "a number", v, where)
    for k, op in (("eq", lambda a, b: a == b), ("ge", lambda a, b: a >= b), ("le", lambda a, b: a <= b)):
        if k in c:
            test(op(v, c[k]), f"{k} {c[k]}", round(v, 4) if isinstance(v, float) else v, where)


def path_get(j, path):
    for part in re.findall(r"[^.\[\]]+", path):
        try:
            j = j[int(part)] if isinstance(j, list) else j[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return j
