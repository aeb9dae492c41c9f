"""Numbers in the text: each is read from what cells handed over, or marked as what it is.

Text outside of code cells (prose, mathematics, headings, captions, alt texts, tables) may hold

    {value}`slope:.2f`         a figure of this chapter, or one of its parameters, in a format
    {value}`42:edges[2].beta`  an entry of another chapter's figure
    {value}`benchmarks:dmft.steps`  what a benchmark measured; {value}`times:test.minutes`
    {setting}`64`              a number that the chapter's code sets
    {cited}`1.2434`            a number from the literature, which the front matter lists
    {hand}`0.5 = tanh(0.549)`  arithmetic that a reader can follow, with the expression for it

and the notebook, the page and README show plain numbers in their place.
"""

import ast
import math
import re
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from bookmaker.base import Fault, SourceError
from bookmaker.figures import FIGURES, is_table, written

# Marks are for the check alone; pages show what is in them.
MARKS = ("setting", "cited", "hand")
_ROLE = re.compile(rf"\{{(value|{'|'.join(MARKS)})\}}(`+)(.+?)(?<!`)\2(?!`)", re.DOTALL)
_READ = re.compile(
    r"(?:(?P<chapter>\d\d[a-z]?|benchmarks|times):)?"
    r"(?P<path>[A-Za-z]\w*(?:\.\w+|\[[^\]]*\])*)(?::(?P<form>.*))?"
)
_STEP = re.compile(r"\[[^\]]*\]|\w+")
_COMPUTED = re.compile(r"(?P<shown>[-−]?[\d.]+)(?P<percent> ?%)? = (?P<expression>.+)")
_FORMULA = re.compile(
    r"(?<!\\)\$\$.*?\$\$|(?<![\\$])\$(?!\$)(?:[^$\n]|\n(?!\s*\n))+?(?<!\\)\$", re.DOTALL
)
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
_README = re.compile(r"(<!--value ([^>]+?)-->)(.*?)(<!--/-->)", re.DOTALL)
# What a number is not looked for in: code, other roles, targets of links, comments, addresses.
_NO_PROSE = re.compile(
    r"\{[\w:]+\}`[^`]*`|(`+)[^`].*?\1|(?:\[\d\d[a-z]?)?\]\([^)\s]*\)|<!--.*?-->|https?://\S+",
    re.DOTALL,
)
_TOKEN = re.compile(r"(?<![\w.^])(?<![A-Za-z]-)(?:\d+(?:(?:,|\{,\})\d{3})*(?:\.\d+)?|\.\d+)")
# A number may follow it at once, `\approx1.5`; the digits of `\frac12` are two numbers.
_COMMAND = re.compile(r"\\(?![dt]?frac)[A-Za-z]+")
_PERCENT = re.compile(r"(?:\s|\\,)*\\?(?:%|per ?cent\b)(\s*(?:interval|confidence|level))?")
# The shape of a picture on the page.
_SHAPE = re.compile(r"^\s*:(?:width|height|scale):.*$", re.MULTILINE)
# A number behind these names a place or a version, no result.
_PLACE = re.compile(
    r"(?:Python|CC BY|[Cc]hapters?|Parts?|exercises?|answers?|[Ss]ections?|[Ff]igures?|Figs?\."
    r"|Eqs?\.|[Tt]ables?|[Aa]ppendix|[Pp]ages?|[Ll]ayers?|claims?)"
    r"(?: \d+[a-z]?(?:,| and| to))* \(?$"
)
_LARGEST = 12
_ROUNDED = 0.4
# An integer before one of these is a result, however small it is.
_UNIT = re.compile(
    r"\s+(?:nats?|bits?|ms|seconds?|minutes?|hours?|tokens?|steps?|heads?|networks?|texts?|samples?)\b"
)
# What, typed against a figure, shows another number than it: digits, a sign, a power of ten.
_SPOILT_BEFORE = re.compile(r"\d[.,]?\Z|(?:\A|[\s$=(<>≈])[-+−]\Z")
_SPOILT_AFTER = re.compile(
    r",?\d|\.\d|[ \t]?\\?%|(?:\s|\\,)*(?:\\times|\\cdot|×|·)\s*10(?!\d)|e[-+]?\d|-?fold\b"
    r"|\s+(?:hundred|thousand|million|billion|per ?cent)\b"
)
_SCIENTIFIC = re.compile(r"[eE][-+−]?\d+\b")
_COUNTED = re.compile(r"\s+(?:out )?of\s+(?:the\s+|all\s+)?\d")
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_TEENS = ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_DIGITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_SPELLED = {word: 13 + place for place, word in enumerate(_TEENS)}
_SPELLED |= {word: 20 + 10 * place for place, word in enumerate(_TENS)}
_SPELLED |= {
    f"{tens}-{digit}": _SPELLED[tens] + place
    for tens in _TENS
    for place, digit in enumerate(_DIGITS, start=1)
}
_COUNTS = {"a": 1, "ten": 10, "eleven": 11, "twelve": 12} | _SPELLED
_COUNTS |= {digit: place for place, digit in enumerate(_DIGITS, start=1)}
_LARGE = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_WORD = re.compile(
    rf"\b({'|'.join(sorted(_COUNTS, key=len, reverse=True))})((?:\s+(?:{'|'.join(_LARGE)})\b)+)"
    rf"|\b(?:{'|'.join(_TEENS)}|(?:{'|'.join(_TENS)})(?:-\w+)?)\b",
    re.IGNORECASE,
)
_NUMERAL = re.compile(r"(?<![\w.])\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?|(?<![\w.])\.\d+")
_FUNCTIONS = {name: value for name, value in vars(math).items() if name[0] != "_"}
_FUNCTIONS |= {"abs": abs, "round": round, "sum": sum, "ln": math.log}

Lookup = Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True)
class Role:
    """A role in a text: what kind, what stands in it, where it begins and ends, in which line."""

    kind: str
    content: str
    begin: int
    end: int
    line: int
    formula: bool

    @property
    def reads(self) -> tuple[str, str]:
        """The number of the chapter ("" for this one) and the name of the figure it reads."""
        match = _READ.fullmatch(self.content)
        if self.kind != "value" or not match:
            return "", ""
        return match["chapter"] or "", _STEP.findall(match["path"])[0]


def roles(text: str) -> list[Role]:
    """Return the roles of a source outside of its code, in order."""
    visible = prose(text)
    lines = [place for place, letter in enumerate(text) if letter == "\n"]
    formulas = [match.span() for match in _FORMULA.finditer(visible)]
    all_roles = []
    for match in _ROLE.finditer(visible):
        begin, end = match.span()
        formula = any(first < begin and end < last for first, last in formulas)
        content = " ".join(match[3].split()) if match[1] == "value" else match[3].strip()
        line = bisect(lines, begin - 1) + 1
        all_roles.append(Role(match[1], content, begin, end, line, formula))
    return all_roles


def prose(text: str) -> str:
    """Return a source with blanks for its front matter and code; what is left keeps its place.

    Captions and alt texts stay: they stand at the head of code cells.
    """
    kept = []
    closing = ""
    state = "prose"
    directives: list[str] = []  # the fences that opened those in which a line stands
    for number, line in enumerate(text.split("\n")):
        bare = line.strip()
        fence = _FENCE.match(line)
        show = False
        if state == "matter":
            state = "prose" if bare == "---" else state
        elif state == "prose":
            if number == 0 and bare == "---":
                state = "matter"
            elif fence and fence[2].startswith("{code-cell}"):
                state = "head"
                closing = fence[1]
            elif directives and bare.startswith(directives[-1]) and not bare.strip("`~"):
                directives.pop()
            elif fence and fence[2].startswith("{"):
                # Its text is read; left in, the fence would pair with a later backtick.
                directives.append(fence[1])
                line = line.replace(fence[1], " " * len(fence[1]), 1)
                show = True
            elif fence:
                state = "code"
                closing = fence[1]
            else:
                show = True
        elif bare.startswith(closing) and not bare.strip("`~"):
            state = "prose"
        elif state == "head" and bare == "---":
            state = "options"
        elif state == "options":
            state = "code" if bare == "---" else state
            show = state == "options"
        elif state == "head":
            state = "head" if bare.startswith(":") else "code"
        kept.append(line if show else " " * len(line))
    return "\n".join(kept)


def handed_over(notebook: NotebookNode) -> tuple[dict[str, Any], list[str]]:
    """Return the figures that cells of a notebook handed over, and the names that came twice."""
    all_figures: dict[str, Any] = {}
    twice = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            figures = output.get("data", {}).get(FIGURES, {})
            twice += figures.keys() & all_figures.keys()
            all_figures |= figures
    return all_figures, twice


def reported(notebook: NotebookNode) -> dict[str, Any]:
    """Return what the text of a notebook can read: its parameters, then what cells handed over."""
    return parameters(notebook) | handed_over(notebook)[0]


def parameters(notebook: NotebookNode) -> dict[str, Any]:
    """Return the parameters of a notebook, with the values of its run."""
    values: dict[str, Any] = {}
    for cell in notebook.cells:
        if {"parameters", "injected-parameters"} & set(cell.metadata.get("tags", [])):
            for node in ast.parse(cell.source).body:
                target = getattr(node, "target", None) or getattr(node, "targets", [None])[0]
                if isinstance(target, ast.Name):
                    values[target.id] = ast.literal_eval(node.value)
    return values


def resolve(figures: Mapping[str, Any], path: str) -> Any:
    """Return a figure or an entry of it; ValueError that says what there is instead.

    `name.key` and `name[key]` are entries of a dictionary, `name[2]` of a list, counted from 0;
    of a table `name[2]` and `name[column=entry, …]` are rows, whose entries are `.column`.

    >>> table = {"columns": ["n", "share"], "rows": [[16, 0.25], [64, 0.5]]}
    >>> resolve({"errors": table, "slope": {"value": 2.0, "error": 0.1}}, "errors[n=64].share")
    0.5
    """
    name, *steps = _STEP.findall(path)
    if name not in figures:
        near = ", ".join(sorted(key for key in figures if key[:3] == name[:3])) or "none like it"
        raise ValueError(f"no figure named {name!r} is handed over ({near})")
    value = figures[name]
    for step in steps:
        value = _entry(value, step.strip("[]"), path)
    return value


def _entry(value: Any, key: str, path: str) -> Any:
    if is_table(value):
        rows = [dict(zip(value["columns"], row, strict=True)) for row in value["rows"]]
        if key in value["columns"]:
            return [row[key] for row in rows]
        if "=" in key:
            wanted = [part.partition("=")[::2] for part in key.split(",")]
            chosen = [r for r in rows if all(_same(r.get(k.strip()), v.strip()) for k, v in wanted)]
            if len(chosen) == 1:
                return chosen[0]
            raise ValueError(f"{path}: {len(chosen)} rows have {key}")
        value = rows
    if isinstance(value, dict) and key in value:
        return value[key]
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    there = f"keys {', '.join(value)}" if isinstance(value, dict) else "no such place"
    if isinstance(value, list):
        there = f"{len(value)} entries, counted from 0"
    raise ValueError(f"{path} has no entry {key!r}: {there}")


def _same(entry: Any, text: str) -> bool:
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        try:
            return math.isclose(entry, float(text))
        except ValueError:
            return False
    return str(entry) == text


def shown(role: Role, own: Mapping[str, Any], others: Lookup) -> str:
    """Return what is shown in place of a role; ValueError if it cannot be filled.

    `own` are the figures of the text's chapter; `others` returns those of the chapter with
    a number.
    """
    if role.kind != "value":
        computed = _COMPUTED.fullmatch(role.content) if role.kind == "hand" else None
        if not computed:
            return role.content
        number = computed["shown"].replace("−", "-")
        # A bare % begins a comment in mathematics.
        return written(number + ("%" if computed["percent"] else ""), formula=role.formula)
    match = _READ.fullmatch(role.content)
    if not match:
        raise ValueError(f"{role.content!r} must be a name, chapter:name, or either with :format")
    figures = others(match["chapter"]) if match["chapter"] else own
    value = resolve(figures, match["path"])
    try:
        return written(value, match["form"] or "", formula=role.formula)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{role.content}: {error}") from None


def rounded_away(role: Role, own: Mapping[str, Any], others: Lookup) -> str:
    """Return what is wrong with the format of a figure, "" if it shows what the figure is.

    Without two decimals, it must not be shown off by more than `_ROUNDED` of itself, as zero say.
    With two, 0.00 tells of a null how near to zero it is.
    """
    match = _READ.fullmatch(role.content)
    form = re.fullmatch(r",?\.(?:[01]f|0%)", (match and match["form"]) or "")
    if role.kind != "value" or not match or not form:
        return ""
    try:
        value = resolve(others(match["chapter"]) if match["chapter"] else own, match["path"])
    except ValueError:
        return ""  # named elsewhere
    # What has an error bar says itself how well it is known.
    if not isinstance(value, float) or not math.isfinite(value):
        return ""
    text = format(value, form[0]).replace(",", "")
    told = float(text.rstrip("%")) / (100 if "%" in text else 1)
    return "" if abs(told - value) <= _ROUNDED * abs(value) else f"{role.content} hides {value:.6g}"


def filled(
    text: str, *, file: str, own: Mapping[str, Any], others: Lookup, missing: str | None = None
) -> str:
    """Return a source with numbers in the place of its roles.

    Raises SourceError that names every role that cannot be filled, by file and line, unless
    `missing` says what stands in its place.
    """
    pieces = []
    end = 0
    faults = []
    for role in roles(text):
        try:
            words = shown(role, own, others)
        except ValueError as error:
            faults.append(Fault(file, role.line, str(error)))
            words = missing or ""
        pieces += [text[end : role.begin], words]
        end = role.end
    if faults and missing is None:
        raise SourceError(faults)
    return "".join([*pieces, text[end:]])


def readme(text: str, *, file: str, others: Lookup) -> str:
    """Return a file for other programs, `<!--value 33:slope:.2f-->0.08<!--/-->`, with its numbers.

    Raises SourceError as `filled` does.
    """
    faults = []

    def number(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.start()) + 1
        try:
            words = shown(Role("value", match[2].strip(), 0, 0, line, False), {}, others)
        except ValueError as error:
            faults.append(Fault(file, line, str(error)))
            words = match[3]
        return f"{match[1]}{words}{match[4]}"

    done = _README.sub(number, text)
    if faults:
        raise SourceError(faults)
    return done


def readme_typed(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and number for each that is typed into such a file, as `typed_numbers` does."""
    yield from typed_numbers(_README.sub(lambda match: "".join(_blank(match[0])), text))


def without_roles(text: str) -> str:
    """Return a text with blanks in the place of its roles."""
    return _ROLE.sub(lambda match: "".join(_blank(match[0])), text)


def shown_code(text: str) -> str:
    """Return the code that a text shows its readers: its blocks, and what stands in backticks."""
    visible = prose(text)
    lines = zip(text.split("\n"), visible.split("\n"), strict=True)
    blocks = [line for line, kept in lines if not kept.strip()]
    quoted = re.findall(r"(?<![}`])`([^`\n]+)`", without_roles(visible))
    return "\n".join([*blocks, *quoted])


def readme_reads(text: str) -> list[tuple[str, str]]:
    """Return chapter and name of the figures that such a file reads."""
    return [
        Role("value", match[1].strip(), 0, 0, 1, False).reads for match in _README.findall(text)
    ]


def integers(figure: Any) -> Iterator[int]:
    """Yield the integers among figures: in lists, dictionaries and tables, too."""
    if isinstance(figure, int) and not isinstance(figure, bool):
        yield figure
    elif isinstance(figure, list | dict):
        for entry in figure.values() if isinstance(figure, dict) else figure:
            yield from integers(entry)


def spelled_numbers(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield line, words and number for each from thirteen on that a source spells.

    These are thirteen to ninety-nine and "seven hundred", "a thousand", "three hundred thousand".
    Smaller ones are pronouns as often as they are results, and "a hundred" means many.
    """
    left = _typed_text(text)
    for match in _WORD.finditer(left):
        words = " ".join(match[0].lower().split())
        number = _SPELLED.get(words, 0)
        if match[2] and words != "a hundred":
            number = _COUNTS[match[1].lower()]
            number *= math.prod(_LARGE[word] for word in match[2].lower().split())
        if number:
            yield left.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), number


def spoilt_figures(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and role of each figure against which digits, a sign or a power of ten are typed.

    ``-{value}`slope` ``, ``1{value}`slope` `` and ``{value}`slope:.2f` %`` show another number than
    what the cell handed over.
    """
    for role in roles(text):
        if role.kind == "value" and _spoilt(text[: role.begin], text[role.end :]):
            yield role.line, f"{{value}}`{role.content}`"


def readme_spoilt(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name for the figures of such a file that are spoilt as in `spoilt_figures`."""
    for match in _README.finditer(text):
        if _spoilt(text[: match.start()], text[match.end() :]):
            yield text.count("\n", 0, match.start()) + 1, match[2].strip()


def claim_spoilt(text: str) -> Iterator[str]:
    """Yield the names, `{slope:.2f}`, in a claim's words that are spoilt as in `spoilt_figures`."""
    for match in re.finditer(r"\{[A-Za-z_]\w*(?::[^{}`]*)?\}(?!`)", text):
        if _spoilt(text[: match.start()], text[match.end() :]):
            yield match[0]


def _spoilt(before: str, after: str) -> bool:
    return bool(_SPOILT_BEFORE.search(before[-3:]) or _SPOILT_AFTER.match(after[:40]))


def _typed_text(text: str) -> str:
    """Return the prose of a source with blanks for roles, code and addresses."""
    visible = list(prose(text))
    for role in roles(text):
        visible[role.begin : role.end] = _blank("".join(visible[role.begin : role.end]))
    left = "".join(visible)
    for hidden in (_NO_PROSE, _SHAPE):
        left = hidden.sub(lambda match: "".join(_blank(match[0])), left)
    return left


def typed_numbers(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and number for each that is typed into a source and not marked as what it is.

    These are all decimals, percentages and "3 times", in mathematics, too, and integers above
    twelve, in mathematics only where a formula ends in one (`$n=64$`), and below that before a
    unit, `8 tokens`, and in `8 of 10` and `1e-3`. A year, the number of a chapter, figure or
    equation, a list's, and what stands in code is none of them.
    """
    left = _typed_text(text)
    formulas = [match.span() for match in _FORMULA.finditer(left)]
    apart = _COMMAND.sub(lambda match: " " * len(match[0]), left)
    for match in _TOKEN.finditer(apart):
        begin, end = match.span()
        if _is_result(left, match, next((f for f in formulas if f[0] < begin < f[1]), None)):
            yield left.count("\n", 0, begin) + 1, left[begin:end]


def _blank(text: str) -> list[str]:
    return ["\n" if letter == "\n" else " " for letter in text]


def _is_result(text: str, match: re.Match[str], formula: tuple[int, int] | None) -> bool:
    before = text[: match.start()][-80:]
    after = text[match.end() :][:40]
    if _PLACE.search(" ".join(before.split()) + " " * before[-1:].isspace()):
        return False
    percent = _PERCENT.match(after)
    if percent and percent[1]:
        return False
    if "." in match[0] or percent or re.match(r"\s+times\b", after) or _UNIT.match(after):
        return True
    if _SCIENTIFIC.match(after) or (not formula and _COUNTED.match(after)):
        return True
    number = int(re.sub(r"\D", "", match[0]))
    if number <= _LARGEST or re.match(r"\w|-[a-z]", after):
        return False
    if formula:
        return bool(re.search(r"(?:\$|[=<>]|\\\w+)\s*[-+]?$", before) and after.lstrip()[:1] == "$")
    year = 1900 <= number < 2100 and len(match[0]) == 4
    listed = re.search(r"\n\s*\Z", before) and re.match(r"\.\s", after)
    return not (year or listed)


def hand_problem(role: Role) -> str:
    """Return what is wrong with arithmetic by hand, "" if its expression gives what is shown."""
    computed = _COMPUTED.fullmatch(role.content)
    if not computed:
        return f"{role.content}: must read `number = expression`, one number each"
    shown_text = computed["shown"].replace("−", "-")
    expression = computed["expression"].replace("^", "**").replace("−", "-")
    if re.fullmatch(r"[-+\d.eE() ]+", expression) and not re.search(r"\d *[-+]", expression):
        return f"{role.content}: repeats the number, which is no arithmetic"
    try:
        value = float(eval(expression, {"__builtins__": {}}, dict(_FUNCTIONS)))
        number = float(shown_text)
    except Exception as error:
        return f"{role.content}: cannot be computed: {error}"
    value *= 100 if computed["percent"] else 1
    room = 0.5001 * 10.0 ** -len(shown_text.partition(".")[2])
    return "" if abs(value - number) <= room else f"{role.content}: gives {value:.6g}"


def cited_problem(role: Role, listed: Mapping[str, list[float]]) -> str:
    """Return what is wrong with a cited number, "" if it is `listed` with its source."""
    allowed = {float(number) for numbers in listed.values() for number in numbers}
    absent = [text for text in _numerals(role.content) if float(text) not in allowed]
    message = "the front matter has it under no source, `cited: {KEY: [NUMBER]}`"
    return f"cited {', '.join(absent)}: {message}" if absent else ""


def setting_problem(role: Role, numerals: set[float]) -> str:
    """Return what is wrong with a setting, "" if the chapter's code has its numbers.

    `numerals` are those of the code; a percentage may stand there as a fraction.
    """
    absent = [
        text
        for text in _numerals(role.content)
        if not any(
            math.isclose(float(text), one) or math.isclose(float(text), 100 * one)
            for one in numerals
        )
    ]
    return f"setting {', '.join(absent)}: no such number in its code" if absent else ""


def _numerals(content: str) -> list[str]:
    return _NUMERAL.findall(re.sub(r"(?<=\d)(?:,|\{,\})(?=\d{3})", "", content))


def numerals_of(text: str) -> set[float]:
    """Return the numbers that stand in some code."""
    return {float(number.replace("_", "")) for number in _NUMERAL.findall(text)}
