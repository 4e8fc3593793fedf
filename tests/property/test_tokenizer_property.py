"""The tokenizer against Hugging Face's `tokenizers` on random text of many scripts."""
import json
import random
import subprocess
import unicodedata

import pytest
import tokenizers

SEED = 20260601
TEXTS = 4000

# Ranges to draw from, roughly one a script, and what is hard about them.
RANGES = [
    (0x20, 0x7e), (0x20, 0x7e), (0xa0, 0x24f),                          # Latin
    (0x300, 0x36f), (0x323, 0x345), (0x483, 0x487),                     # marks, in any order
    (0x370, 0x3ff), (0x400, 0x4ff), (0x531, 0x586),                     # Greek, Cyrillic, Armenian
    (0x591, 0x5f4), (0x600, 0x6ff), (0x700, 0x74f), (0x780, 0x7b1),     # Hebrew, Arabic, Syriac, Thaana
    (0x900, 0x97f), (0x980, 0x9fe), (0xa01, 0xa76), (0xb01, 0xb77),     # Devanagari, Bengali, Gurmukhi, Odia
    (0xb82, 0xbfa), (0xc00, 0xc7f), (0xd00, 0xd7f), (0xd81, 0xdf4),     # Tamil, Telugu, Malayalam, Sinhala
    (0xe01, 0xe5b), (0xe81, 0xedf), (0xf00, 0xfda), (0x1000, 0x109f),   # Thai, Lao, Tibetan, Myanmar
    (0x10a0, 0x10ff), (0x1200, 0x139f), (0x13a0, 0x13f5), (0x1780, 0x17f9),   # Georgian, Ethiopic, Cherokee, Khmer
    (0x1100, 0x11ff), (0xac00, 0xd7a3),                                 # Hangul, by letters and by syllables
    (0x1b00, 0x1b4b), (0x1e00, 0x1fff),                                 # Balinese, Latin and Greek additions
    (0x2000, 0x206f), (0x2070, 0x218b), (0x2190, 0x27bf),               # punctuation, numbers, symbols
    (0x3000, 0x303f), (0x3041, 0x30ff), (0x4e00, 0x9fff), (0xf900, 0xfaff),   # Kana, Han and its doubles
    (0xfb00, 0xfdff), (0xfe00, 0xfe2f), (0xff00, 0xffef),               # presentation forms
    (0x10400, 0x1044f), (0x11000, 0x110bf), (0x11100, 0x1114f), (0x11300, 0x11374),   # beyond 16 bits
    (0x1d15e, 0x1d1c0), (0x1d400, 0x1d7ff), (0x1f300, 0x1f9ff), (0x20000, 0x20fff), (0x2f800, 0x2fa1d),
    (0xe000, 0xe0ff), (0xe0100, 0xe01ef), (0x10fff0, 0x10ffff),         # private use, selectors, the end
]
WORDS = [
    " ", "  ", "\n", "\r\n", "\t", " \n \n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b", "\x00", "\x1c",
    "'s", "'S", "'\u017f", "'ll", "'LL", "'re", "'ve", "'m", "'d", "\u2019s", "the", " the", " and", "ing", "123", "007",
    "...", "!=", "->", "https://", "caf\u00e9", "cafe\u0301", "\u212b", "\u2126", "\u0344", "\u0958", "\ufb1d", "\u1112\u1161\u11ab",
    "\ufeff", "\ufffd", "e\u0323\u0301", "e\u0301\u0323", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea",
]
ADDED = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<|endoftext|>", "<tts_text_bos_single>",
         "<|im_", "<think", "<tts_text_bos", "<<", "|>"]
LAST = 0x30000


def known_alike(reference):
    """The characters that the reference's Unicode tables (of several ages: it normalises by version 9) and
    Python's describe alike; on the others Lily follows newer tables than the reference."""
    def nfc(text):
        return reference.normalizer.normalize_str(text) == unicodedata.normalize("NFC", text)

    def in_word(c):
        return len(reference.pre_tokenizer.pre_tokenize_str("a" + c)) == 1

    same = set()
    for code in [*range(LAST), *range(0xe0000, 0xe0200), *range(0x10ff00, 0x110000)]:
        c = chr(code)
        kind = unicodedata.category(c)
        if kind in ("Cn", "Cs"):
            continue
        if nfc("\u0345" + c) and nfc(c + "\u0334") and nfc("e\u0323" + c + "\u0301") and in_word(c) == (kind[0] in "LM"):
            same.add(code)
    return same


def random_text(rng, alphabet):
    parts = []
    home = [rng.choice(RANGES) for _ in range(3)]
    for _ in range(rng.randrange(1, 40)):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(WORDS))
        elif kind < 0.42:
            parts.append(rng.choice(ADDED))
        elif kind < 0.45:
            parts.append(rng.choice(WORDS + ["a", "\u0301", "\u4f60"]) * rng.randrange(1, 80))
        else:
            low, high = rng.choice(home if kind < 0.9 else RANGES)
            parts.append("".join(chr(c) for c in (rng.randint(low, high) for _ in range(rng.randrange(1, 6)))
                                 if c in alphabet))
    return "".join(parts)


class Pair:
    """Lily's tokenizer and the reference's."""

    def __init__(self, build_dir, model):
        self.command = [str(build_dir / "tests" / "tok_cli"), str(model)]
        self.reference = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
        self.alphabet = known_alike(self.reference)

    def texts(self, count, salt):
        rng = random.Random(SEED + salt)
        return [random_text(rng, self.alphabet) for _ in range(count)]

    def lily(self, requests):
        lines = "".join(json.dumps(r) + "\n" for r in requests)
        done = subprocess.run(self.command, input=lines, capture_output=True, text=True, encoding="utf-8", timeout=300)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


@pytest.fixture(scope="module", params=["ck/tiny", "ck/odd", "ck/full", "demo"])
def pair(request, build_dir, source_dir):
    return Pair(build_dir, source_dir / "models/demo" if request.param == "demo" else build_dir / "tests" / request.param)


def test_ids(pair):
    lily, reference = pair.lily, pair.reference
    given = pair.texts(TEXTS, 0)
    for text, ids in zip(given, lily({"text": t, "special": True} for t in given)):
        assert ids == reference.encode(text, add_special_tokens=False).ids, ascii(text)


def test_every_character(pair):
    lily, reference = pair.lily, pair.reference
    given = ["a%s %s%se\u0323%s\u0301!%s\n%s" % ((chr(c),) * 6) for c in sorted(pair.alphabet)]
    assert len(given) > 140000    # all but a few hundred
    given = given[::11]
    for text, ids in zip(given, lily({"text": t, "special": True} for t in given)):
        assert ids == reference.encode(text, add_special_tokens=False).ids, ascii(text)


def test_decoded_text(pair):
    """Ids in any order, so that characters are cut and joined wrongly, and ids without text."""
    lily, reference = pair.lily, pair.reference
    rng = random.Random(SEED + 1)
    top = reference.get_vocab_size()
    given = [[rng.choice((rng.randrange(256), rng.randrange(top), rng.randrange(top + 50))) for _ in range(rng.randrange(30))]
             for _ in range(2000)]
    for skip in (False, True):
        whole = lily({"ids": ids, "skip": skip} for ids in given)
        steps = lily({"ids": ids, "skip": skip, "step": True} for ids in given)
        for ids, text, step in zip(given, whole, steps):
            assert text == reference.decode(ids, skip_special_tokens=skip), ids
            assert "".join(step) == text, ids


def test_spans_of_the_template_change_nothing(pair):
    """Cut at random, all from the template: the ids of the joined text."""
    lily, reference = pair.lily, pair.reference
    rng = random.Random(SEED + 2)
    given = pair.texts(2000, 3)
    spans = []
    for text in given:
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(5)))
        spans.append([[text[a:b], True] for a, b in zip([0] + cuts, cuts + [len(text)])])
    for text, ids in zip(given, lily({"spans": s} for s in spans)):
        assert ids == reference.encode(text, add_special_tokens=False).ids, ascii(text)


def test_spans_of_a_user_are_letters(pair):
    """Template and user text in turns.  An added token counts where the template alone wrote it; what stands
    between two of them has the ids that the reference gives without knowing added tokens."""
    lily, reference = pair.lily, pair.reference
    plain = json.loads(reference.to_str())
    special = {t["content"]: t["id"] for t in plain.pop("added_tokens")}
    plain = tokenizers.Tokenizer.from_str(json.dumps(plain | {"added_tokens": []}))
    rng = random.Random(SEED + 4)
    spans, wanted = [], []
    for _ in range(2000):
        parts, want, stretch = [], [], ""
        for i in range(rng.randrange(1, 8)):
            if i % 2 == 0:
                token = rng.choice(sorted(special))
                parts.append([token, True])
                want += plain.encode(stretch).ids + [special[token]]
                stretch = ""
            else:
                text = random_text(rng, pair.alphabet)
                parts += [[text[: len(text) // 2], False], [text[len(text) // 2:], False]]
                stretch = text
        spans.append(parts)
        wanted.append(want + plain.encode(stretch).ids)
    for given, ids, want in zip(spans, lily({"spans": s} for s in spans), wanted):
        assert ids == want, ascii(given)
