"""Chat templates: what they see, what they may not do, and what happens when they are hostile."""

import datetime
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specli.errors import FormatError, SpecliError, UnsupportedError, UsageError
from specli.tokenizer import ChatTemplate, Tokenizer, renderer
from specli.tokenizer.named_templates import NAMED_TEMPLATES
from tests.support.tiny_vocab import bpe_vocab
from tests.support.vocab_files import vocab_file

SYSTEM = {"role": "system", "content": "S"}
USER = {"role": "user", "content": "U"}
ANSWER = {"role": "assistant", "content": "A"}


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, origin="m.gguf: chat template", bos_token="<s>", eos_token="</s>")


def render(source: str, messages: list[dict[str, Any]] | None = None, **options: Any) -> str:
    options = {"add_generation_prompt": True, **options}
    return template(source).render([USER] if messages is None else messages, **options)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("  {% if true %}\nx\n  {% endif %}\ny\n\n", "x\ny\n"),  # blocks and one final line end are trimmed
        ("a\r\nb", "a\nb"),
        (
            "{% for i in [0, 1, 2, 3] %}{% if i == 1 %}{% continue %}{% endif %}"
            "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "U!"),
        ('{{ {"b": 1, "ä": [true, none, 1.5]} | tojson }}', '{"b": 1, "ä": [true, null, 1.5]}'),
        ('{{ {"b": [1]} | tojson(indent=2) }}', '{\n  "b": [\n    1\n  ]\n}'),
        ('{{ "<&>" | tojson }}', '"<&>"'),
        (
            '{{ none | default("d") }}{{ nope | default("d") }}{{ "" | default("d") }}{{ "" | default("d", true) }}',
            "ddd",
        ),
        ("{% set ns = namespace(n=1) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{{ cycler is defined }} {{ lipsum is defined }} {{ joiner is defined }}", "False False False"),
        ("{{ add_generation_prompt is defined }} {{ tools is defined }} {{ enable_thinking }}", "True False False"),
        ("{{ nope }}{{ messages | length }}", "1"),
        ('{{ "a" + nope }}{{ nope + "b" }}', "ab"),  # as in llama.cpp; firefunction-v2 does so with its functions
    ],
)
def test_dialect(source: str, text: str) -> None:
    assert render(source) == text


def test_dates() -> None:
    year = str(datetime.datetime.now().year)
    text = render('{{ datetime }}|{{ date_string }}|{{ strftime_now("%Y") }}')
    assert text.count(year) == 3


def test_without_generation_prompt_the_variable_is_undefined() -> None:
    assert render("{{ add_generation_prompt is defined }}", add_generation_prompt=False) == "False"


def test_tools_and_variables() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert render("{{ tools[0].function.name }}", tools=tools) == "f"
    assert render("{{ tools is defined }}", tools=[]) == "False"
    assert render("{{ enable_thinking }} {{ x }}", variables={"enable_thinking": False, "x": 3}) == "False 3"
    source = "{{ [preserve_thinking, clear_thinking, truncate_history_thinking, drop_thinking] }}"
    assert render(source, variables={"preserve_reasoning": True}) == "[True, False, False, False]"
    assert render("{{ reasoning_strength }}", variables={"reasoning_effort": "low"}) == "low"


ALL = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
TYPED = "{% for m in messages %}[{{ m.role }}:{% for p in m.content %}{{ p.text }};{% endfor %}]{% endfor %}"
NO_SYSTEM = (
    '{% for m in messages %}{% if m.role == "system" %}{{ raise_exception("no") }}{% endif %}'
    "[{{ m.content }}]{% endfor %}"
)
THINKING = (
    "{% for m in messages %}[{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    '{% if p.type == "thinking" %}({{ p.thinking }}){% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}]'
    "{% endfor %}"
)
STEPFUN = "You have access to the following functions in JSONSchema format"
PARTS = [{"type": "text", "text": "1"}, {"type": "image"}, {"type": "text", "text": "2"}]


@pytest.mark.parametrize(
    ("source", "messages", "text"),
    [
        (ALL, [SYSTEM, USER], "[system:S][user:U]"),
        (f"{{#{STEPFUN}#}}{ALL}", [{"role": "user", "content": " U\n"}], "[user:U]"),
        (f"{{#{STEPFUN}#}}{TYPED}", [{"role": "user", "content": [{"type": "text", "text": " U\n"}]}], "[user:U;]"),
        (THINKING, [USER, ANSWER | {"reasoning_content": "R"}], "[U][(R)A]"),
        (THINKING, [USER, ANSWER], "[U][A]"),
        (ALL, [ANSWER | {"reasoning_content": "R"}], "[assistant:A]"),
        (ALL, [{"role": "developer", "content": "D"}, USER], "[system:D][user:U]"),
        ("{#<|channel|>#}" + ALL, [{"role": "developer", "content": "D"}], "[developer:D]"),
        (NO_SYSTEM, [SYSTEM, USER, ANSWER], "[S\nU][A]"),
        (NO_SYSTEM, [SYSTEM], ""),
        (NO_SYSTEM, [{"role": "developer", "content": "D"}, USER], "[D\nU]"),
        (ALL, [{"role": "user", "content": PARTS}], "[user:1\n2]"),
        (TYPED, [USER], "[user:U;]"),
        (TYPED, [{"role": "user", "content": PARTS}], "[user:1;;2;]"),
        (ALL, [{"role": "assistant", "content": None, "tool_calls": []}], "[assistant:]"),
        (
            "{#<|channel|>#}{% for m in messages %}{{ m.thinking }}{% endfor %}",
            [{"role": "assistant", "content": "A", "reasoning_content": "R"}],
            "R",
        ),
    ],
)
def test_messages_are_fitted_to_the_template(source: str, messages: list[dict[str, Any]], text: str) -> None:
    before = json.dumps(messages)
    assert render(source, messages) == text
    assert json.dumps(messages) == before


CALLS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    "({% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}){% endfor %}{% endfor %}"
)


def test_arguments_become_objects_where_the_template_wants_them() -> None:
    call = {"function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert render(CALLS, messages) == "f(x=1)"
    plain = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        '{% if c.function.arguments is string %}{{ c.function.arguments ~ "" }}{% endif %}{% endfor %}{% endfor %}'
    )
    assert render(plain, messages) == '{"x": 1}'
    call["function"]["arguments"] = "{"
    with pytest.raises(UsageError, match="tool call arguments are not JSON"):
        render(CALLS, messages)


def test_checks_that_forbid_legitimate_conversations_are_passed_over() -> None:
    message = "You have passed a message containing <|channel|> tags in the content field. Instead …"
    assert render(f"{{{{ raise_exception({json.dumps(message)}) }}}}x") == "x"


HOSTILE = {
    "{{ a": "line 1: unexpected end of template, expected 'end of print statement'",
    "\n{% for %}": "line 2: Expected an expression, got 'end of statement block'",
    '{{ "".__class__.__mro__ }}': "access to attribute '__class__' of 'str' object is unsafe",
    "{{ messages.append(1) }}": "access to attribute 'append' of 'list' object is unsafe",
    "{{ nope.x }}": "'nope' is undefined",
    "{{ 1 / 0 }}": "ZeroDivisionError: division by zero",
    '{{ raise_exception("no\x1b[31m\n way") }}': "no [31m way",
    '{% include "/etc/passwd" %}': "TypeError: no loader for this environment specified",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "is nested too deeply",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}": "is nested too deeply",
    '{{ "a" * 10**10 }}': "needs more than 512 MiB",
    '{{ "{:9999999999}".format(1) }}': "needs more than 512 MiB",
    "{% for i in range(9999) %}{% for j in range(999) %}aaaaaaaaaaaaaaaaaaaa{% endfor %}{% endfor %}": (
        "renders more than 4194304 characters"
    ),
}


@pytest.mark.parametrize("source", HOSTILE)
def test_broken_and_hostile_templates_give_one_line(source: str) -> None:
    if "MiB" in HOSTILE[source] and sys.platform != "linux":
        pytest.skip("address space is bounded on Linux only")
    with pytest.raises(FormatError) as caught:
        render(source)
    assert str(caught.value) == f"m.gguf: chat template: {HOSTILE[source]}"


ENDLESS = {
    "loop": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    # Comparing two lists that hold themselves 2^60 times: one call that nothing inside the process can interrupt.
    "comparison": (
        "{% set a = namespace(x=1) %}{% for i in range(60) %}{% set a.x = [a.x, a.x] %}{% endfor %}"
        "{% set b = namespace(x=1) %}{% for i in range(60) %}{% set b.x = [b.x, b.x] %}{% endfor %}{{ a.x == b.x }}"
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_endless_templates_are_stopped(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = "from specli.tokenizer import renderer; renderer.MAX_SECONDS = 0.3; renderer.main()"
    monkeypatch.setattr("specli.tokenizer.template._BOOTSTRAP", f"import sys; sys.path[:] = sys.argv[1:]; {hasty}")
    subject = template(ENDLESS[case])
    with pytest.raises(FormatError, match=r"^m\.gguf: chat template: takes too long to render$"):
        subject.render([USER], add_generation_prompt=True)
    subject.source = "{{ messages[0].content }}"
    assert subject.render([USER], add_generation_prompt=True) == "U"  # with a new process


def test_huge_sources_are_refused() -> None:
    with pytest.raises(FormatError, match="has 1048577 characters, at most 1048576 are accepted"):
        render("a" * (1 + (1 << 20)))


SHARED = template("")


@given(st.text(st.sampled_from("{}%#-\"' \n[](),.|~*+abmessages0_")) | st.text())
@settings(max_examples=200, deadline=None)
def test_any_source_renders_or_gives_one_line(source: str) -> None:
    SHARED.source = source
    try:
        outcome = SHARED.render([USER], add_generation_prompt=True)
    except SpecliError as error:
        outcome = str(error)
        printable = outcome.isprintable()  # hence one line
    else:
        printable = True
    assert printable, outcome


def test_a_broken_template_does_no_harm_until_it_is_used() -> None:
    pairs = {**bpe_vocab().metadata, "tokenizer.chat_template": ("str", "{% broken")}
    file = vocab_file(pairs)
    ChatTemplate.from_gguf(file, Tokenizer.from_gguf(file))


def choose(override: str | None = None, **stored: str) -> ChatTemplate:
    pairs = {key: pair for key, pair in bpe_vocab().metadata.items() if not key.startswith("tokenizer.chat")}
    file = vocab_file(pairs | {f"tokenizer.{key}": ("str", value) for key, value in stored.items()})
    return ChatTemplate.from_gguf(file, Tokenizer.from_gguf(file), override)


def test_which_template() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    both = {"chat_template": "plain", "chat_template.tool_use": "tools"}
    flags = {"add_generation_prompt": True}
    assert choose(**both).render([USER], **flags) == "plain"
    assert choose(**both).render([USER], tools=tools, **flags) == "tools"
    assert choose("{{ 1 }}", **both).render([USER], tools=tools, **flags) == "1"
    assert choose(**{"chat_template.tool_use": "tools"}).render([USER], **flags) == "tools"
    assert choose().source == choose(chat_template="chatml").source == choose("chatml").source
    assert choose("llama3").source == NAMED_TEMPLATES["llama3"]
    with pytest.raises(UnsupportedError) as caught:
        choose("nosuch")
    assert str(caught.value) == "the supplied chat template is not supported: 'nosuch'"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("built-in templates: chatml, ")


def test_special_tokens_come_from_the_vocabulary() -> None:
    subject = choose(chat_template="{{ bos_token }}{{ eos_token }}")
    assert subject.render([USER], add_generation_prompt=True) == "<|endoftext|><|im_end|>"


def test_bos_is_not_doubled() -> None:
    pairs = {**bpe_vocab().metadata, "tokenizer.ggml.add_bos_token": ("bool", True)}
    tokenizer = Tokenizer.from_gguf(vocab_file(pairs))
    assert tokenizer.encode_chat("<|endoftext|>a") == tokenizer.encode_chat("a")
    assert tokenizer.encode_chat("a").count(tokenizer.bos_id or 0) == 1


def test_the_renderer_needs_neither_numpy_nor_the_rest_of_specli() -> None:
    code = "import sys, specli.tokenizer.renderer as r; print(sorted({m.split('.')[0] for m in sys.modules}))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'jinja2'" in modules
    assert "'numpy'" not in modules
    assert renderer.MAX_SECONDS == 5
