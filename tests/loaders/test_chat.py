"""Chat templates: what Hugging Face's give, and the bounds that hostile ones run into."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from samebits.core.errors import BadInput, SamebitsError
from samebits.loaders import ChatTemplate, chat

HELLO = [{"role": "user", "content": "h\u00e9llo"}]


def render(source: str, **options: object) -> str:
    return ChatTemplate(source, "m.gguf").render(HELLO, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}", "<s>h\u00e9llo</s>"),
        ("{% if add_generation_prompt %}\n  go\n{% endif %}\n", "  go\n"),
        ("  {% for m in messages %}\n  {{ m.role }}\n  {% endfor %}\n", "  user\n"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "h\u00e9llo"}]'),
        ("{{ {'b': '<', 'a': 1} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 1,\n "b": "<"\n}'),
        ("{{ strftime_now('%d %b %Y') }}", "02 Jan 2025"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% generation %}{{ 'x' }}{% endgeneration %}", "x"),
        ("{{ tools is none }} {{ thinking }}", "True on"),
        ("{%- set ns = namespace(n=0) -%}{%- set ns.n = 3 -%}{{ ns.n }}", "3"),
    ],
)
def test_what_templates_may_use(source: str, expected: str) -> None:
    now = datetime(2025, 1, 2)
    variables = {"thinking": "on"} if "thinking" in source else None
    assert (
        render(source, special_tokens={"bos_token": "<s>", "eos_token": "</s>"}, now=now, variables=variables)
        == expected
    )


@pytest.mark.parametrize(
    ("source", "is_read"),
    [
        ("{{ x }}", True),
        ("{% if x is defined and x %}a{% endif %}", True),
        ("{% if x is not defined %}{% set x = 1 %}{% endif %}{{ x }}", True),
        ("{% set y = x | default(1) %}{{ y }}", True),
        ("{% macro f(a) %}{{ a }}{{ x }}{% endmacro %}{{ f(1) }}", True),
        ("{% for m in messages %}{% if not loop.first and x %}a{% endif %}{% endfor %}", True),
        ("{% generation %}{{ x }}{% endgeneration %}", True),
        ("{# x #} x {{ 'x' }}", False),
        ("{{ messages[0].x }}{{ messages[0]['x'] }}", False),
        ("{% set x = 1 %}{{ x }}", False),
        ("{% for x in messages %}{{ x.role }}{% endfor %}", False),
        ("{% macro x(a) %}{% endmacro %}{{ x(1) }}", False),
    ],
)
def test_a_variable_that_is_not_read_is_refused(source: str, is_read: bool) -> None:
    if is_read:
        render(source, variables={"x": 1})
    else:
        with pytest.raises(
            BadInput, match="x is 1, which is not supported: the model's chat template does not read it"
        ):
            render(source, variables={"x": 1})
    with pytest.raises(BadInput, match="range is 1, which is not supported"):
        render(source + "{{ range(1) }}", variables={"range": 1})


def test_a_refusal_repeats_the_start_of_a_value() -> None:
    with pytest.raises(BadInput) as caught:
        render("", variables={"x": "y" * 1_000_000})
    assert len(str(caught.value)) < 400


HOSTILE = {
    "endless loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a power without end": "{{ 9 ** (9 ** 9) }}",
    "a list without end": "{% set l = range(90000) | list %}{% set x = (l * 9999) | sum %}",
    "doubling": "{% set ns = namespace(x='aaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "a wide field": "{{ '%9999999999d' % 1 }}",
    "much text": "{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}",
    "a macro in itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_templates_that_do_not_end_are_cut(name: str) -> None:
    start = time.monotonic()
    with pytest.raises(BadInput, match=r"m\.gguf: chat template is "):
        render(HOSTILE[name], max_seconds=0.5)
    assert time.monotonic() - start < 20
    assert render("{{ 1 + 1 }}") == "2"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{{ raise_exception('roles must\nalternate') }}", "it refuses: roles must alternate"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ messages[7].content }}", "UndefinedError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% include 'x' %}", "no loader|TypeError|TemplateNotFound"),
        ("{{ 'x' | nofilter }}", "No filter named"),
    ],
)
def test_wrong_templates(source: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected) as caught:
        render(source)
    assert "\n" not in str(caught.value)


WITHOUT_CHANCE = (
    "{{ range(99) | list | random }}",
    "{{ lipsum() }}",
    "{{ {'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5}.keys() - ['c'] }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S.%f %j %c') }}",
)


def test_with_a_clock_that_stands_a_template_says_the_same_in_every_process() -> None:
    def said(source: str) -> str:
        try:
            return render(source, now=chat.FROZEN_TIME)
        except BadInput as error:
            return str(error)

    seen = set()
    for _ in range(4):
        chat._WORKER.close()  # the next one is another process
        seen.add(tuple(said(source) for source in WITHOUT_CHANCE))
    assert len(seen) == 1


def test_a_process_that_does_not_come_up_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests and the server's shutdown wait for the process."""
    silent, worker = tmp_path / "silent.py", chat._Worker()
    silent.write_text("import time\ntime.sleep(60)\n")
    with monkeypatch.context() as patch:
        patch.setattr(chat, "WORKER", silent)
        patch.setattr(chat, "START_SECONDS", 0.2)
        with pytest.raises(SamebitsError, match="its process did not start"):
            worker.ask("{}", 5.0)
    assert "error" in (worker.ask("{}", 5.0) or {})  # another process, which finds no template
    worker.close()


def test_bad_arguments() -> None:
    with pytest.raises(BadInput, match=r"chat template has 1048577 characters"):
        ChatTemplate("x" * ((1 << 20) + 1), "m.gguf")
    with pytest.raises(BadInput, match="plain data"):
        ChatTemplate("x", "m.gguf").render([{"role": object()}])
