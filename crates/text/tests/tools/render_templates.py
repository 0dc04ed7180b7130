"""What Python's jinja2 makes of chat templates, in an environment set up as `transformers` sets up its own.

    pip install jinja2
    python render_templates.py ../data/templates

reads every *.jinja there and writes `rendered.json` (each template with each conversation) and `semantics.json`
(small templates that use one feature each). The product's tests render the same and compare.
"""
import json
import sys
from datetime import datetime, timezone
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1753531200  # 2025-07-26 12:00:00 UTC


class Generation(Extension):
    """The `generation` block of transformers, without its bookkeeping."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.fromtimestamp(NOW, timezone.utc).strftime(format)
    return env


def render(source, request):
    try:
        variables = {
            "messages": request["messages"],
            "tools": request.get("tools"),
            "documents": None,
            "add_generation_prompt": request.get("add_generation_prompt", False),
            "bos_token": "<s>",
            "eos_token": "</s>",
            **request.get("extra", {}),
        }
        return {"text": environment().from_string(source).render(**variables)}
    except (jinja2.exceptions.UndefinedError, jinja2.exceptions.TemplateSyntaxError, jinja2.exceptions.SecurityError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    except jinja2.exceptions.TemplateError as error:
        return {"raised": error.message}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def message(role, content, **fields):
    return {"role": role, "content": content, **fields}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <now> & 'here' in a city, like \"Zürich\" or 東京.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "  The city. "},
                "days": {"type": ["integer", "string"], "description": "How many days", "default": 1.5},
                "units": {"type": "string", "enum": ["°C", "°F"], "description": "Units"},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
        "return": {"type": "object", "description": "A report"},
    },
}
SUM = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds numbers",
        "parameters": {
            "type": "object",
            "properties": {"numbers": {"type": "array", "description": "The numbers", "items": {"type": "number"}}},
        },
    },
}
CALL = {
    "id": "call12345",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "wind": None, "snow": True, "x": 1e-7}},
}
CALL_2 = {"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": {"numbers": [1, 2.0, 1e22]}}}
CALL_TEXT = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'}}

SYSTEM = message("system", "You answer in one word.")
HI = message("user", "Hi there!  ")
ANSWER = message("assistant", "\n\nHello. ")
AGAIN = message("user", "And again?\n")
UNICODE = message("user", "🦙 «Ünïcode» 你好 مرحبا \u202e \u0000 👩‍👩‍👧‍👦 <|im_end|> </s> {{ 1 + 1 }} {% raise %}")
THOUGHT = message("assistant", "<think>\nA greeting.\n</think>\n\nHello.")
REASONED = message("assistant", "Hello.", reasoning_content="\nA greeting.\n")

CONVERSATIONS = {
    "user": {"messages": [HI]},
    "user, prompt": {"messages": [HI], "add_generation_prompt": True},
    "system, user": {"messages": [SYSTEM, HI], "add_generation_prompt": True},
    "empty system": {"messages": [message("system", ""), HI], "add_generation_prompt": True},
    "turns": {"messages": [HI, ANSWER, AGAIN], "add_generation_prompt": True},
    "system, turns": {"messages": [SYSTEM, HI, ANSWER, AGAIN, ANSWER]},
    "unicode": {"messages": [UNICODE], "add_generation_prompt": True},
    "tools": {"messages": [SYSTEM, HI], "tools": [WEATHER, SUM], "add_generation_prompt": True},
    "tools, no system": {"messages": [HI], "tools": [WEATHER], "add_generation_prompt": True},
    "no tools": {"messages": [HI], "tools": [], "add_generation_prompt": True},
    "tool call": {
        "messages": [
            SYSTEM,
            message("user", "Weather?"),
            message("assistant", None, tool_calls=[CALL]),
            message("tool", '{"sky": "grün"}', name="get_weather", tool_call_id="call12345"),
        ],
        "tools": [WEATHER],
        "add_generation_prompt": True,
    },
    "tool calls": {
        "messages": [
            message("user", "Weather?"),
            message("assistant", "", tool_calls=[CALL, CALL_2]),
            message("tool", "sunny", name="get_weather", tool_call_id="call12345"),
            message("tool", "3", name="add", tool_call_id="abcdefghi"),
            message("assistant", "It is sunny."),
            AGAIN,
        ],
        "tools": [WEATHER, SUM],
        "add_generation_prompt": True,
    },
    "tool call, text": {
        "messages": [
            message("user", "Weather?"),
            message("assistant", "", tool_calls=[CALL_TEXT]),
            message("tool", "rain", tool_call_id="call12345"),
        ],
        "add_generation_prompt": True,
    },
    "wrong id": {"messages": [HI, message("assistant", "", tool_calls=[{**CALL, "id": "1"}])]},
    "two users": {"messages": [HI, AGAIN], "add_generation_prompt": True},
    "assistant first": {"messages": [ANSWER, HI]},
    "thought": {"messages": [HI, THOUGHT, AGAIN], "add_generation_prompt": True},
    "reasoned": {"messages": [HI, REASONED, AGAIN, THOUGHT]},
    "thinking off": {"messages": [HI], "add_generation_prompt": True, "extra": {"enable_thinking": False}},
    "no think": {"messages": [message("system", "Be brief. /no_think"), HI, ANSWER, AGAIN], "add_generation_prompt": True},
    "date": {"messages": [HI], "add_generation_prompt": True, "extra": {"date_string": "1 May 2024"}},
    "documents": {
        "messages": [HI],
        "add_generation_prompt": True,
        "extra": {
            "documents": [{"doc_id": 1, "text": "A fact."}, {"doc_id": "b", "text": "Ein «Fakt»."}],
            "controls": {"citations": True, "length": "short"},
        },
    },
    "unknown role": {"messages": [HI, message("narrator", "Night falls.")]},
    "none": {"messages": []},
}

# One feature each. `v` is bound to VALUE.
VALUE = {
    "text": "  It's \"quoted\"\n<b>&</b> ünï 🦙 ",
    "int": 3,
    "big": 12345678901234567890,
    "float": 2.5,
    "whole": 2.0,
    "small": 1.5e-7,
    "huge": 1e16,
    "yes": True,
    "no": False,
    "nothing": None,
    "list": [1, "two", 3.0, None, True, ["x"]],
    "map": {"b": 1, "a": {"z": [], "y": {}}, "ß": "\u0001\u007f"},
    "empty": [],
}
SEMANTICS = [
    # printing
    "{{ v.int }} {{ v.big }} {{ v.float }} {{ v.whole }} {{ v.small }} {{ v.huge }} {{ v.yes }} {{ v.no }} {{ v.nothing }}",
    "{{ v.list }}|{{ v.map }}|{{ v.empty }}|{{ v.text }}",
    "{{ [v.text, \"it's\", 'a\\\\b\\tc'] }}",
    "{{ missing }}|{{ v.missing }}|{{ missing is defined }}|{{ missing or 'x' }}|{{ missing|length }}",
    "{{ v.list|string }}|{{ v.whole|string }}|{{ v.nothing|string }}|{{ v.yes|string }}",
    "{{ 7 / 2 }} {{ 8 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 1 + 2.0 }}",
    "{{ 'a' ~ 1 ~ 'b' }}|{{ 'ab' * 3 }}|{{ [1] + [2] }}",
    # tojson
    "{{ v|tojson }}",
    "{{ v.map|tojson(indent=2) }}|{{ v.empty|tojson(indent=2) }}|{{ {}|tojson(indent=2) }}",
    "{{ v.list|tojson(indent=4) }}",
    "{{ v.map|tojson(sort_keys=true, separators=(',', ':')) }}|{{ v.text|tojson(ensure_ascii=true) }}",
    "{{ v.map|tojson(none, 1) }}",
    "{{ [1e300, 1e-5, 0.1, 123456789.125, -0.0, 1e15, 1e16, 1e22]|tojson }}",
    "{{ {1: 2, none: 3, true: 4}|tojson }}",
    # whitespace
    "  {% if true %}  \n  x\n  {% endif %}  \ny\n",
    "a\n  {%- if true -%}  \n  x\n  {%- endif %}\n\ny\n\n",
    "{% for i in [1, 2] %}\n    {{ i }}\n{% endfor %}\nend\n",
    "  {# note #}  \nx\n   {#- note -#}   \ny",
    "{%+ if true %} x {%+ endif %}\n",
    # loops
    "{% for i in [1, 2, 3, 4] %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ (loop.previtem or {}).role }}{{ loop.nextitem is defined }};{% endfor %}",
    "{% for k, x in v.map.items() %}{{ k }}={{ x }};{% endfor %}{% for k, x in v.map|items %}{{ k }};{% endfor %}{% for k in v.map %}{{ k }}{% endfor %}",
    "{% for k, x in v.map|dictsort %}{{ k }}{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
    "{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}",
    "{% set ns = namespace(n=0, found=false) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{{ ns.found }}",
    "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x|length }}",
    "{% macro f(a, b='d') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}",
    "{% generation %}\nx\n{% endgeneration %}\ny",
    "{%- generation -%}  x  {%- endgeneration -%}  y",
    # strings
    "[{{ v.text.strip() }}][{{ v.text|trim }}][{{ 'xxaxx'.strip('x') }}][{{ '\\n\\na\\n'.lstrip('\\n') }}][{{ 'a  '.rstrip() }}]",
    "{{ 'a,b,c'.split(',') }}{{ 'a b  c'.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a</think>b'.split('</think>')[-1] }}",
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('bc') }}{{ 'abc'.upper() }}{{ 'ABC'|lower }}{{ 'abc def'.title() }}{{ 'abc'.capitalize() }}",
    "{{ 'abcabc'.replace('b', 'x') }}{{ 'abcabc'|replace('b', 'x') }}{{ 'abcabc'.replace('b', 'x', 1) }}{{ 'abc'.find('c') }}{{ 'aaa'.count('a') }}",
    "{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abcdef'[1:-1] }}{{ 'abc'[::-1] }}{{ 'abc'[5:] }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.txt'.removesuffix('.txt') }}{{ 'k=v=w'.partition('=')[2] }}{{ 'k=v=w'.rpartition('=')[0] }}",
    "{{ '{} and {}'.format(1, 'b') }}|{{ '%s' | format('y') }}",
    "{{ ['a', 1, none]|join(', ') }}|{{ ', '.join(['a', 'b']) }}|{{ messages|map(attribute='role')|join('/') }}",
    "{{ 'line1\\nline2'|indent(2) }}|{{ 'line1\\nline2'|indent(2, true) }}|{{ 'a\\nb'.splitlines() }}",
    "{{ 'ünï'|length }}{{ '🦙'|length }}{{ 'ünï'.upper() }}",
    "{{ 'b' in 'abc' }}{{ 'x' not in 'abc' }}{{ 1 in [1] }}{{ 'a' in {'a': 1} }}{{ 'x' in missing }}",
    "{{ '1'|int + 1 }}{{ '2.5'|float }}{{ 'x'|default('y') }}{{ missing|default('y') }}{{ none|default('z') }}{{ ''|default('e', true) }}",
    "{{ 'a<b>&'|e }}{{ 'a<b'|safe }}{{ 'a<b' }}",
    # tests
    "{{ 'a' is string }}{{ 1 is number }}{{ 1.5 is float }}{{ 1 is integer }}{{ true is boolean }}{{ none is none }}{{ true is true }}{{ false is false }}",
    "{{ {} is mapping }}{{ [] is mapping }}{{ [] is sequence }}{{ 'a' is sequence }}{{ {} is sequence }}{{ 1 is sequence }}",
    "{{ 'a' is iterable }}{{ {} is iterable }}{{ [] is iterable }}{{ 1 is iterable }}{{ 3 is odd }}{{ 4 is even }}{{ 4 is divisibleby 2 }}",
    "{{ 1 is number }}{{ true is number }}{{ 'a' is eq 'a' }}{{ v.text is not defined }}",
    # lists and maps
    "{{ [3, 1, 2]|sort }}{{ [3, 1, 2]|max }}{{ [1, 2]|sum }}{{ [1, 2, 3]|first }}{{ [1, 2, 3]|last }}{{ [1, 1]|unique|list }}{{ [1, 2]|reverse|list }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|rejectattr('role', 'eq', 'user')|map(attribute='content')|list }}",
    "{{ [1, 2, 3, 4]|select('odd')|list }}{{ [0, 1]|reject('equalto', 0)|list }}{{ [[1, 'a'], [2, 'b']]|map('last')|list }}",
    "{{ v.map.get('b') }}{{ v.map.get('q') }}{{ v.map.get('q', 7) }}{{ v.map.keys()|list }}{{ v.map['b'] }}{{ v.map.values()|list|length }}",
    "{{ v.list[1:3] }}{{ v.list[-1][0] }}{{ v.list|length }}{{ messages[0]['role'] }}{{ messages[-1].content }}",
    "{{ dict(a=1, b=2) }}{{ (1, 2)[1] }}{{ [1, 2] == [1, 2] }}{{ {'a': 1} == {'a': 1} }}{{ messages[0] == messages[0] }}",
    "{{ 'x' if v.yes else 'y' }}{{ 'x' if v.no }}{{ not v.empty }}{{ v.int > 2 and v.int < 4 }}{{ 1 == 1.0 }}{{ none == false }}",
    # errors
    "{{ missing.field }}",
    "{{ missing() }}",
    "{{ 'a' + 1 }}",
    "{{ none + 'a' }}",
    "{{ 'abc'.nothing() }}",
    "{{ raise_exception('No ' ~ 3 ~ ' turns') }}",
    "{% if x %}",
    "{{ messages.append(1) }}",
    # dates
    "{{ strftime_now('%d %B %Y') }}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S') }}|{{ strftime_now('%A %j') }}",
]

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    rendered = []
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for name, request in CONVERSATIONS.items():
            rendered.append({"template": path.stem, "conversation": name, **render(source, request)})
    conversations = {name: request for name, request in CONVERSATIONS.items()}
    dump = lambda value: json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    (folder / "rendered.json").write_text(dump({"now": NOW, "conversations": conversations, "rendered": rendered}), encoding="utf-8")
    snippets = []
    for source in SEMANTICS:
        request = {"messages": [SYSTEM, HI, ANSWER], "extra": {"v": VALUE}}
        snippets.append({"source": source, **render(source, request)})
    request = {"messages": [SYSTEM, HI, ANSWER], "extra": {"v": VALUE}}
    (folder / "semantics.json").write_text(dump({"now": NOW, "request": request, "snippets": snippets}), encoding="utf-8")
