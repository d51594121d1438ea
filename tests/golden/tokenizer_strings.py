"""The strings on which tokenizers are compared: the same ones on every run, from one seed.

Characters are drawn from those assigned in Unicode 14, the version of this Python's and of Debian's PCRE2;
later ones are letters to one library and symbols to another (common/model/pre_tokenizer.h).
"""

import random
import sys
import unicodedata

SEED = 20240817
SPACES = [" ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\u00a0", "\u0085", "\u1680", "\u2003", "\u2028", "\u202f", "\u3000"]
NEAR_SPACES = ["\u180e", "\u200b", "\u2060", "\ufeff", "\u00ad", "\x00", "\x1c", "\x1f", "\x7f"]

SENTENCES = [
    "The quick brown fox jumps over the lazy dog; it isn't tired, and they'll go again.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío, añoraba a su querido cachorro.",
    "Pchnąć w tę łódź jeża lub ośm skrzyń fig.", "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.", "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה", "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश", "আমি কাঁচ খেতে পারি, তাতে আমার কোনো ক্ষতি হয় না।",
    "நான் கண்ணாடி சாப்பிடுவேன்", "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า", "ᠮᠣᠩᠭᠣᠯ\u180eᠪᠢᠴᠢᠭ", "མི་རིགས་དང་སྐད་ཡིག",
    "いろはにほへと ちりぬるを わかよたれそ つねならむ", "視野無限廣，窗外有藍天。", "키스의 고유조건은 입술끼리 만나야 하고", "ሰማይ አይታረስ ንጉሥ አይከሰስ።",
    "Tiếng Việt có dấu thanh: ngã, hỏi, nặng.", "İstanbul'da ısırgan otu, ŞİŞLİ'de iğne.", "Ⅷ ½ ² ³ ٣٤٥ १२३ 一二三 𝟘𝟙𝟚 ①②③",
]

CODE = [
    "def f(x: int) -> int:\n    return x ** 2  # square\n\n\nprint(f(12345))\n",
    "#include <vector>\nint main() {\n\tstd::vector<int> v{1, 2, 3};\n\treturn v[0] != 0 ? 1 : -1;\n}\n",
    '{"key": [1.5e-10, null, true], "nested": {"a\\"b": "\\u00e9"}}', "<div class=\"a\">&nbsp;<!-- x --></div>\r\n<p>\r\n",
    "SELECT * FROM t WHERE a<>'it''s' AND b>=10;--x", "for i in $(seq 1 100); do echo \"${i}\" >> /tmp/log_$i.txt; done",
    "const x = () => { return `${a}_${b}` ?? (c || !d); };", "\\begin{equation} e^{i\\pi} + 1 = 0 \\end{equation}",
    "std::cout<<\"\\t\"<<(a&&b||c)<<std::endl;//////", "0xDEADBEEF 0b1010 1_000_000 3.14159 1e9 v1.2.3 192.168.0.1:8080 2024-06-11T12:34:56Z",
    "https://example.com/path?query=1&other=%20x#frag user@example.org", "/* ***** */ ---- ==== ____ ~~~~ !!!??? ...",
]

EMOJI = ["😀", "👍🏽", "👨\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "🇫🇷🇩🇪", "1️⃣", "❤️", "🧑🏿\u200d🚀", "☃", "👩\u200d❤️\u200d💋\u200d👨", "🫠", "🏴\U000e0067\U000e0062\U000e007f"]

CONTRACTIONS = ["'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'m", "'ll", "'LL", "'lL", "'d", "'D", "\u2019s", "'\u017f", "'", "''", "'r", "'l", "'x"]

# First and last code point of blocks whose letters, marks and digits are drawn together.
SCRIPTS = [
    (0x41, 0x7A), (0xC0, 0x24F), (0x250, 0x2AF), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x58F), (0x591, 0x5F4), (0x600, 0x6FF), (0x700, 0x74F),
    (0x780, 0x7BF), (0x7C0, 0x7FA), (0x900, 0x97F), (0x980, 0x9FE), (0xA00, 0xA7F), (0xA80, 0xAFF), (0xB00, 0xB7F), (0xB80, 0xBFA), (0xC00, 0xC7F),
    (0xC80, 0xCF2), (0xD00, 0xD7F), (0xD80, 0xDF4), (0xE00, 0xE5B), (0xE80, 0xEDF), (0xF00, 0xFDA), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1400, 0x167F), (0x16A0, 0x16F8), (0x1780, 0x17F9), (0x1800, 0x18AA), (0x1E00, 0x1EFF), (0x1F00, 0x1FFE),
    (0x2000, 0x206F), (0x2070, 0x209C), (0x2100, 0x218B), (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2C00, 0x2C5F), (0x2D30, 0x2D7F), (0x3000, 0x303F),
    (0x3041, 0x30FF), (0x3105, 0x312F), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA48C), (0xAC00, 0xD7A3), (0xF900, 0xFAD9), (0xFB00, 0xFB4F),
    (0xFE70, 0xFEFC), (0xFF01, 0xFFEE), (0x10000, 0x100FA), (0x10330, 0x1034A), (0x12000, 0x12399), (0x13000, 0x1342E), (0x1D400, 0x1D7FF),
    (0x1E900, 0x1E959), (0x1F000, 0x1FAFF), (0x20000, 0x2A6DF),
]


def is_assigned(code_point):
    """Whether Unicode 14 has a character there (surrogates and private use are none)."""
    return unicodedata.category(chr(code_point)) not in ("Cn", "Cs", "Co")


def _from_script(rng, first, last):
    characters = [chr(c) for c in (rng.randint(first, last) for _ in range(80)) if is_assigned(c)]
    words = []
    while characters:
        take = rng.randint(1, 9)
        words.append("".join(characters[:take]))
        del characters[:take]
        words.append(rng.choice([" ", " ", " ", "  ", ", ", ". ", "\n", "-", "'", "\u3000", ""]))
    return "".join(words)


def _whitespace(rng):
    parts = []
    for _ in range(rng.randint(1, 8)):
        parts.append(rng.choice(SPACES + NEAR_SPACES) * rng.choice([1, 1, 1, 2, 3, 4, 7, 8, 15, 16, 33]))
        parts.append(rng.choice(["", "", "a", "word", "9", "42", "!", "é", "'s", "中", ";", "\u0301"]))
    return "".join(parts)


def _digits(rng):
    zeros = [0x30, 0x660, 0x966, 0xE50, 0xFF10, 0x1D7CE]
    parts = []
    for _ in range(rng.randint(1, 6)):
        zero = rng.choice(zeros) if rng.random() < 0.3 else 0x30
        parts.append("".join(chr(zero + rng.randint(0, 9)) for _ in range(rng.randint(1, 12))))
        parts.append(rng.choice(["", " ", "  ", ".", ",", "e", "½", "²", "-", "x", "\n", "%", "Ⅻ"]))
    return "".join(parts)


def _marks(rng):
    bases = "aeioqAEzÅéüחकあ각 1!"
    marks = "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0328\u0345\u0591\u05b0\u093c\u094d\u0f71\u0f72\u0f74\u3099\u309a\u1161\u11a8\u20dd"
    return "".join(rng.choice(bases) + "".join(rng.choices(marks, k=rng.choice([0, 1, 1, 2, 3, 5]))) for _ in range(rng.randint(1, 20)))


def _random_bytes(rng):
    raw = bytes(rng.choice([rng.randint(0, 255), rng.randint(0, 127), rng.randint(0xC2, 0xF4), rng.randint(0x80, 0xBF)]) for _ in range(rng.randint(1, 300)))
    return "".join(c for c in raw.decode("utf-8", errors="ignore") if is_assigned(ord(c)))


def _random_characters(rng):
    drawn = (rng.choice([rng.randint(0, 0x10FFFF), rng.randint(0, 0xFFFF), rng.randint(0, 0x7FF)]) for _ in range(60))
    return "".join(chr(c) for c in drawn if is_assigned(c))


def _mixture(rng):
    sources = SENTENCES + CODE + EMOJI + CONTRACTIONS + SPACES
    pieces = []
    for _ in range(rng.randint(2, 10)):
        source = rng.choice(sources)
        begin = rng.randint(0, len(source) - 1)
        pieces.append(source[begin:begin + rng.randint(1, 30)])
    return "".join(pieces)


def _specials(rng, special_tokens):
    parts = []
    for _ in range(rng.randint(1, 6)):
        parts.append(rng.choice(special_tokens))
        if rng.random() < 0.3:  # one that is cut, or run together with another
            parts[-1] = parts[-1][:rng.randint(1, len(parts[-1]))] + rng.choice(special_tokens)
        parts.append(rng.choice(["", " ", "user\n", "\n", "a", "  x", "é", "<", "<|", "|>", "'s", "7"]))
    return "".join(parts)


def _vocabulary_words(rng, words):
    return "".join(rng.choice(words) for _ in range(rng.randint(1, 25)))


def strings(special_tokens, words):
    """At least 5,000 strings. `special_tokens`: as written in text; `words`: texts of vocabulary entries."""
    rng = random.Random(SEED)
    out = ["", " ", "a", "\n", "\r\n"] + SENTENCES + CODE + EMOJI
    out += [f"I{c}{rest}" for c in CONTRACTIONS for rest in ("", " go", "x", "1", "'s")]
    for first, last in SCRIPTS:
        out += [_from_script(rng, first, last) for _ in range(20)]
    for make, count in ((_whitespace, 800), (_digits, 400), (_marks, 500), (_random_bytes, 500), (_random_characters, 500), (_mixture, 1000)):
        out += [make(rng) for _ in range(count)]
    out += [_specials(rng, special_tokens) for _ in range(400)]
    out += [_vocabulary_words(rng, words) for _ in range(600)]
    out += [c * n for c in ("a", " ", "\n", "=", "é", "0", "😀", "ab", " a", "\r\n") for n in (2, 3, 5, 17, 64, 1000)]
    return out


def every_character():
    """Strings that hold every character of Unicode 14 as the beginning, the inside and the end of a word."""
    out = []
    batch = []
    for code_point in range(sys.maxunicode + 1):
        if not is_assigned(code_point):
            continue
        c = chr(code_point)
        batch.append(f"x{c} {c}1{c}{c}y {c}! ")
        if len(batch) == 32:
            out.append("".join(batch))
            batch = []
    return out + ["".join(batch)]
