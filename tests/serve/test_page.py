"""The chat page: what its headers allow, and a browser that chats through it."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra specli[serve]")
pytest.importorskip("uvicorn", reason="needs the extra specli[serve]")

from specli.demo import MODELS
from specli.serve.config import ServeConfig
from tests.serve.support import Served, run_config, serving

TARGET = next(model.path for model in MODELS if model.is_target)
QUESTION = "Count: one, two, three, one, two, three, one,"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(
        run_config(TARGET, types=("ngram-simple", "ngram-map-k")), ServeConfig(port=0, api_keys=("sesame",))
    ) as it:
        yield it


def test_page_runs_its_own_script_and_nothing_else(served: Served) -> None:
    reply = served.get("/", headers={"Authorization": ""})
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    rules = dict(rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
    assert rules["connect-src"] == "'self'"
    for name, rule in (("script", "script-src"), ("style", "style-src")):
        (text,) = re.findall(rf"<{name}>(.*?)</{name}>".encode(), reply.body, re.DOTALL)
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
    page = reply.body.decode()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(| style=\"| on\w+=\"", page)
    assert not re.search(r"https?://|url\(|@import|src=|<link", page)


def test_page_can_be_left_out() -> None:
    with serving(run_config(TARGET), ServeConfig(port=0, has_page=False)) as plain:
        assert plain.get("/").status == 404
        assert plain.get("/props").json["ui"] is False


class Browser:
    """Chromium with the page, worked by the keyboard."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def find(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def text(self, css: str) -> str:
        return str(self.driver.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", css))

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> str:
        return str(self.driver.switch_to.active_element.get_attribute("id"))

    def reach(self, name: str) -> None:
        """Goes back with the tabulator until an element has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        for _ in range(20):
            if self.focused() == name:
                return
            ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
        raise AssertionError(f"{name} cannot be reached")

    def wait(self, holds: Callable[[], Any], seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, self.text("body")
            time.sleep(0.05)

    def answer(self, number: int) -> None:
        """Waits for the end of an answer."""
        self.wait(lambda: len(self.find(".assistant:not(.running)")) == number)

    def scheme(self, name: str) -> None:
        features = {"features": [{"name": "prefers-color-scheme", "value": name}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def color(self) -> str:
        return str(self.driver.execute_script("return getComputedStyle(document.documentElement).backgroundColor"))

    def save(self, name: str) -> None:
        """Keeps a picture where SPECLI_SCREENSHOTS says so."""
        folder = os.environ.get("SPECLI_SCREENSHOTS")
        if folder:
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1000,860"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def test_browser_chats_by_the_keyboard_alone(served: Served, browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.driver.get(f"http://127.0.0.1:{served.port}/")
    browser.scheme("light")
    browser.wait(lambda: "Invalid API Key" in browser.text("#model"))
    assert browser.focused() == "text"
    browser.press("Hello", Keys.ENTER)
    browser.answer(1)
    assert "Invalid API Key" in browser.text("[role=alert]")
    assert browser.find("#text")[0].get_attribute("value") == "Hello"

    browser.reach("configure")
    browser.press(Keys.ENTER, "0", Keys.TAB, "96", Keys.TAB, "Be brief.", Keys.TAB, "sesame")
    browser.save("settings")
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: browser.text("#model") == "target.gguf")

    browser.find("#text")[0].clear()
    browser.reach("renew")
    browser.press(Keys.ENTER)
    assert not browser.find(".turn")
    assert browser.find("#start")
    browser.press(QUESTION, Keys.ENTER)
    browser.answer(1)
    assert not browser.find("[role=alert]")
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    body = {"messages": asked, "temperature": 0, "max_tokens": 96}
    expected = served.post("/v1/chat/completions", body).json
    said = expected["choices"][0]["message"]["content"]
    assert re.sub(r"\s", "", browser.text(".assistant .text")) == re.sub(r"[\s*`]", "", said)
    accepted = sum(each["draft_n_accepted"] for each in expected["timings"]["drafters"])
    assert accepted > 0
    assert browser.find(".assistant .text span.d0")
    assert f"{expected['timings']['predicted_n']} tokens" in browser.text(".figures")
    assert "accepted" in browser.text(".figures")
    assert browser.text("#status") == "The answer is complete."
    assert browser.driver.execute_script("return document.querySelector('#log').ariaBusy") == "false"
    light = browser.color()
    browser.save("light")

    browser.scheme("dark")
    assert browser.color() != light
    browser.save("dark")
    browser.reach("theme")
    browser.press(Keys.ENTER)
    assert browser.color() == light
    browser.press(Keys.ENTER, Keys.ENTER)
    browser.driver.set_window_size(500, 800)
    browser.driver.execute_script("turn('x', 'x').append(element('pre', '', 'wide '.repeat(99)))")
    assert browser.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    browser.save("small")
    browser.driver.set_window_size(1000, 860)
    refused = [line for line in browser.driver.get_log("browser") if "Content Security" in line["message"]]
    assert not refused


def test_what_a_model_says_is_text(served: Served, browser: Browser) -> None:
    browser.driver.get(f"http://127.0.0.1:{served.port}/")
    shown = browser.driver.execute_script(
        """
        const answer = { text: "", thought: "<b>hm</b>", pieces: [], drawn: 0, timings: null, body: element("div"),
                         figures: element("ul") };
        turn("assistant", "x").append(answer.body);
        for (const char of arguments[0]) {
          take(answer, { choices: [{ delta: { content: char } }], drafter: char === "o" ? "ngram-mod" : null });
          draw(answer);
        }
        return [answer.body.innerHTML, answer.details.lastChild.innerHTML];
        """,
        "<img src=x onerror=alert(1)> **bold** and *so* 2 * 3 * 4\n\n```html\n<script>**x**</script>\n```\nend `a<b`",
    )
    o = '<span class="d0" title="drafted by ngram-mod">o</span>'
    assert shown[1] == "&lt;b&gt;hm&lt;/b&gt;"
    assert shown[0] == (
        f"<p>&lt;img src=x {o}nerr{o}r=alert(1)&gt; <strong>b{o}ld</strong> and <em>s{o}</em> 2 * 3 * 4</p>"
        '<pre tabindex="0"><code>&lt;script&gt;**x**&lt;/script&gt;</code></pre><p>end <code>a&lt;b</code></p>'
    )


def test_stop_button_ends_the_answer(served: Served, browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.driver.get(f"http://127.0.0.1:{served.port}/")
    browser.driver.execute_script("for (const n of FIELDS) keep(n, ''); $('key').value = 'sesame'")
    browser.driver.execute_script(  # the page reads one piece and waits, so that the answer cannot end by itself
        """
        const real = events;
        events = async function* (response) {
          for await (const event of real(response)) {
            yield event;
            if (event.choices[0].delta.content) {
              await new Promise((_, fail) => {
                const stop = () => fail(new DOMException("stopped", "AbortError"));
                running.signal.aborted ? stop() : running.signal.addEventListener("abort", stop);
              });
            }
          }
        };
        """
    )
    browser.press("Tell me a long story.", Keys.ENTER)
    browser.wait(lambda: browser.text(".assistant .text"))
    assert browser.text("#send") == "Stop"
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: browser.text("#send") == "Send")
    served.wait_until(served.is_idle)
    assert browser.driver.execute_script("return messages.length") == 2
    browser.press("And another one.", Keys.ENTER)
    browser.wait(lambda: browser.text(".assistant.running .text"))
    browser.reach("renew")
    browser.press(Keys.ENTER)
    browser.wait(lambda: browser.text("#send") == "Send")
    assert browser.driver.execute_script("return messages.length") == 0
    assert browser.find("#start")
