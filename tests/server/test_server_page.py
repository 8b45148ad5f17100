"""The page's chat in a real browser: it talks, keeps what was said, and one bad message spoils nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import opened, posted, real_browser, say, wait_until_done
from gguf_writer import F32
from live_server import Running, running
from random_tiny import write_random_tiny

from samebits.server.http.security import Door

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with real_browser() as it:
        yield it


@pytest.fixture
def page(browser: Any, server: Running) -> Iterator[Any]:
    with opened(browser, server.url) as it:
        yield it
    server.check_idle()


@pytest.fixture
def slow_page(browser: Any, model_path: Path) -> Iterator[Any]:
    """Of a server whose answers take their time."""
    with running(model_path, {"backend": "reference"}) as server, opened(browser, server.url) as it:
        yield it


def titles(page: Any) -> list[str]:
    return page.locator("#conversations button").all_text_contents()


def test_files_are_served_under_a_strict_policy(server: Running) -> None:
    with server.client() as client:
        reply = client.get("/")
        names = {"main.js", "style.css", "icon.svg"}
        assert all(f"page/{name}" in reply.text for name in names)
        for path in ("/", *(f"/page/{name}" for name in names)):
            found = client.get(path)
            assert found.status_code == 200
            policy = found.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
        for path in ("/page/none.js", "/page/..%2Frun.py", "/page/%2e%2e/app.py", "/page/"):
            assert client.get(path).status_code == 404


def test_the_page_chats_and_draws(page: Any) -> None:
    say(page, "hello hi")
    assert page.locator(".user").text_content() == "hello hi"
    assert page.locator(".assistant .text").text_content()
    assert "tokens/s, seed 1" in page.locator(".note").text_content()
    assert page.locator(".problem").count() == 0
    assert page.locator("#tier").text_content() == "portable"
    page.locator("#steps rect").nth(2).wait_for(state="attached")
    assert " of 1024" in page.locator("#pool-text").text_content()


def test_settings_are_those_of_the_request(page: Any) -> None:
    bodies = posted(page, CHAT)
    page.get_by_text("Settings of this conversation").click()
    for label, value in (("System prompt", "hi"), ("Temperature", "0.25"), ("Seed", "77"), ("Max tokens", "5")):
        page.get_by_label(label).locator("visible=true").fill(value)
    say(page, "hello")
    assert bodies[0]["messages"] == [{"role": "system", "content": "hi"}, {"role": "user", "content": "hello"}]
    assert (bodies[0]["temperature"], bodies[0]["seed"], bodies[0]["max_tokens"]) == (0.25, 77, 5)
    note = page.locator(".note").text_content()
    assert note.startswith("cut at its limit of tokens, 5 tokens")
    page.get_by_label("Seed").locator("visible=true").fill("")
    say(page, "hello")
    say(page, "hello")
    assert len({b["seed"] for b in bodies}) == 3, "without a seed every answer has one of its own"


def test_conversations_are_named_kept_and_deleted(page: Any) -> None:
    say(page, "first")
    answer = page.locator(".assistant .text").text_content()
    page.get_by_role("button", name="New conversation").first.click()
    say(page, "second")
    assert titles(page) == ["second", "first"]
    page.get_by_label("Name of this conversation").fill("renamed <b>")
    page.keyboard.press("Tab")
    page.reload()
    assert titles(page) == ["renamed <b>", "first"]
    page.get_by_role("button", name="first").click()
    assert page.locator(".assistant .text").text_content() == answer
    page.get_by_role("button", name="Delete").click()
    assert titles(page) == ["renamed <b>"]
    page.get_by_role("button", name="Undo").click()
    assert sorted(titles(page)) == ["first", "renamed <b>"]
    page.get_by_role("button", name="Delete").click()
    page.reload()
    assert titles(page) == ["renamed <b>"]


def test_a_message_that_is_too_long_spoils_nothing(page: Any) -> None:
    bodies = posted(page, CHAT)
    say(page, "hello")
    say(page, "hi " * 2000)
    problem = page.locator(".problem").text_content()
    assert "This message is too long: it has 2,000 tokens, and the context holds 512." in problem
    assert page.get_by_role("button", name="Send without the oldest turns").count() == 0
    box = page.get_by_label("Message", exact=True)
    assert box.input_value().startswith("hi hi"), "the message is there to be shortened"
    page.reload()
    assert "too long" in page.locator(".problem").text_content()
    say(page, "hello again")
    sent = [m["content"] for m in bodies[-1]["messages"] if m["role"] == "user"]
    assert sent == ["hello", "hello again"]
    assert page.locator(".assistant").count() == 2
    page.get_by_role("button", name="Remove it").click()
    assert page.locator(".problem").count() == 0


def test_a_message_can_be_edited(page: Any) -> None:
    bodies = posted(page, CHAT)
    say(page, "hello")
    say(page, "hi")
    page.get_by_role("button", name="Edit").first.click()
    say(page, "hello you")
    assert page.locator(".user").all_text_contents() == ["hello you"]
    assert bodies[-1]["messages"] == [{"role": "user", "content": "hello you"}]


def test_a_conversation_that_is_too_long_goes_on(page: Any) -> None:
    bodies = posted(page, CHAT)
    page.get_by_text("Settings of this conversation").click()
    page.get_by_label("Max tokens").locator("visible=true").fill("2")
    for _ in range(2):
        say(page, "hi " * 180)
    say(page, "hi " * 250)
    assert "The conversation is too long with this message" in page.locator(".problem").text_content()
    page.get_by_role("button", name="Send without the oldest turns").click()
    wait_until_done(page)
    assert page.locator(".problem").count() == 0
    assert page.locator(".left-out").count() == 1
    assert len(bodies[-1]["messages"]) == 3


def test_a_stopped_answer_stays(slow_page: Any) -> None:
    page = slow_page

    def go_on(route: Any) -> None:
        route.continue_(post_data=json.dumps({**json.loads(route.request.post_data), "ignore_eos": True}))

    page.route(f"**{CHAT}", go_on)
    page.get_by_label("Message", exact=True).fill("hello")
    page.keyboard.press("Enter")
    page.locator(".assistant .note", has_text="tokens/s").wait_for()
    page.keyboard.press("Escape")
    wait_until_done(page)
    assert page.locator(".note").text_content().endswith("stopped")
    assert page.locator(".assistant .text").text_content()
    assert page.locator(".problem").count() == 0


def test_broken_storage_is_survived(browser: Any, server: Running) -> None:
    sound = {"system": "", "temperature": 0, "seed": None, "maxTokens": None}
    good = {"id": "a", "title": "good", "updated": 5, "settings": sound, "turns": []}
    entries = ["{", "null", "[]", json.dumps({**good, "turns": [{"user": 1}]}), json.dumps({**good, "settings": None})]
    script = "".join(
        f"localStorage.setItem('samebits.conversation.{i}', {json.dumps(text)});"
        for i, text in enumerate([*entries, json.dumps(good)])
    )
    with opened(browser, server.url) as page:
        page.evaluate(script)
        page.reload()
        assert titles(page) == ["good"]
        assert "cannot be read, and are left out: 5" in page.locator("#notice").text_content()
        say(page, "hello")
        assert page.locator(".assistant").count() == 1


def test_what_is_stored_is_bounded(page: Any) -> None:
    kept = page.evaluate(
        """async () => {
            const store = await import('./page/store.js');
            for (let i = 0; i < 105; i += 1) {
                const one = store.newConversation();
                store.save({ ...one, id: String(i), updated: i, title: `number ${i}` });
            }
            const many = store.loadAll()[0].map(c => Number(c.id));
            const big = num => ({ ...store.newConversation(), id: 'big', updated: 200, title: 'x'.repeat(num) });
            const said = [store.save(big(store.MAX_CHARS - 2000)), store.save(big(store.MAX_CHARS))];
            return [many.length, Math.min(...many), store.loadAll()[0].length, said];
        }"""
    )
    assert kept[:2] == [100, 5], "the newest hundred"
    assert 1 <= kept[2] < 20
    assert "made room" in kept[3][0]
    assert "too long" in kept[3][1]


def events(*deltas: dict[str, str]) -> str:
    lines = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    return "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"


def test_reasoning_is_folded(page: Any) -> None:
    text = events({"reasoning_content": "let me "}, {"reasoning_content": "see"}, {"content": "It is *42*."})
    page.route(f"**{CHAT}", lambda route: route.fulfill(body=text, content_type="text/event-stream"))
    say(page, "hello")
    assert page.locator(".assistant .text").text_content() == "It is 42."
    inside = page.locator(".reasoning div")
    assert not inside.is_visible()
    page.get_by_text("Reasoning").click()
    assert inside.text_content() == "let me see"


def test_an_answer_that_breaks_off_says_so(page: Any) -> None:
    text = events({"content": "It is"}).removesuffix("data: [DONE]\n\n")
    page.route(f"**{CHAT}", lambda route: route.fulfill(body=text, content_type="text/event-stream"))
    say(page, "hello")
    assert page.locator(".assistant .text").text_content() == "It is"
    assert "Not answered: the answer broke off." in page.locator(".problem").text_content()


def test_it_fits_a_telephone_in_the_dark(browser: Any, server: Running) -> None:
    small = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    with opened(browser, server.url, **small) as page:
        say(page, "hello " + "x" * 60)
        for view in ("Chat", "Prove it"):
            page.get_by_role("link", name=view).click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"


def test_every_control_has_a_name_and_a_place_in_the_order(page: Any) -> None:
    say(page, "hello")
    unnamed = """[...document.querySelectorAll('button, input, textarea, a, svg[role]')].filter(e => !(
        e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length || e.getAttribute('aria-labelledby')
    )).map(e => e.outerHTML)"""
    assert page.evaluate(unnamed) == []
    page.get_by_label("Message", exact=True).fill("hi")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "send"
    assert page.locator("#log").get_attribute("aria-busy") == "false"


def test_a_browser_with_the_key_gets_all_of_the_page(browser: Any, model_path: Path) -> None:
    key = {"username": "anyone", "password": "sesame"}
    with running(model_path, door=Door("sesame")) as locked, opened(browser, locked.url, http_credentials=key) as page:
        say(page, "hello")
        assert page.locator(".assistant .text").text_content()


def test_empty_settings_show_and_take_the_servers_defaults(browser: Any, tmp_path: Path) -> None:
    keys = {"general.sampling.temp": (F32, 0.35)}
    with (
        running(write_random_tiny(tmp_path / "stating.gguf", **keys)) as server,
        opened(browser, server.url) as page,
    ):
        bodies = posted(page, CHAT)
        page.get_by_text("Settings of this conversation").click()
        page.wait_for_function("document.getElementById('temperature').placeholder === '0.35'")
        assert page.get_by_label("Max tokens").first.get_attribute("placeholder") == "512"
        page.get_by_label("Max tokens").first.fill("3")
        say(page, "hello")
        assert "temperature" not in bodies[0]
        assert bodies[0]["max_tokens"] == 3
