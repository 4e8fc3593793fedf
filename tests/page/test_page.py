"""The page at / as a person uses it: headless Chromium through its driver. Skipped where there is no Chromium."""
import json
import pathlib
import shutil
import sys

import httpx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "conformance"))

from support import Process, free_port  # noqa: E402

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")

ATTACKS = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "<svg onload='window.hit = 1'></svg>",
    "<iframe srcdoc='<script>parent.hit = 1</script>'></iframe>",
    "[press](javascript:window.hit=1)",
    "[press](JaVaScRiPt:window.hit=1)",
    "[press](data:text/html,<script>opener.hit=1</script>)",
    "`<b onmouseover=window.hit=1>x</b>`",
    "```\"><script>window.hit = 1</script>\n</code></pre><script>window.hit = 1</script>\n```",
    "| <script>window.hit = 1</script> | b |\n|---|---|\n| <img src=x onerror=window.hit=1> | d |",
    "> # <a href=\"javascript:window.hit=1\">x</a>",
    "https://example.org/\"onmouseover=\"window.hit=1",
]


@pytest.fixture(scope="session")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=900,700",
                 "--disable-background-networking", "--no-first-run"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    b = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield b
    b.quit()


@pytest.fixture
def serve(build_dir, source_dir, tmp_path):
    """Starts a server with these replies, or with the demo model when there are none."""
    started = []

    def start(*replies, end="error", options=()):
        command = [str(build_dir / "lily"), "serve", "--model", str(source_dir / "models" / "demo"), "--port", "{port}",
                   *options]
        if replies:
            script = tmp_path / "replies.json"
            script.write_text(json.dumps({"replies": list(replies), "end": end}))
            command += ["--script", str(script)]
        started.append(Process(command, free_port()))
        return started[-1].wait_ready()

    yield start
    for p in started:
        p.stop()


class Page:
    def __init__(self, browser, base):
        self.b = browser
        self.b.get(base + "/")
        self.wait(lambda: self.text("#model"))

    def wait(self, what, seconds=20):
        return WebDriverWait(self.b, seconds, poll_frequency=0.05).until(lambda _: what())

    def all(self, css):
        return self.b.find_elements(By.CSS_SELECTOR, css)

    def one(self, css):
        return self.b.find_element(By.CSS_SELECTOR, css)

    def text(self, css):
        return self.one(css).text

    def set(self, name, value):
        """A field of the settings."""
        self.one("#settings-button").click()
        field = self.one(f"[name={name}]")
        if field.get_attribute("type") == "checkbox":
            if field.is_selected() != value:
                field.click()
        else:
            field.clear()
            field.send_keys(value)
        self.one("#settings button[type=submit]").click()

    def type(self, text):
        self.one("#input").send_keys(text, Keys.ENTER)

    def is_idle(self):
        return self.one("#send").is_displayed()

    def ask(self, text):
        self.type(text)
        self.wait(lambda: self.all(".assistant") and self.is_idle())
        return self.all(".assistant .body")[-1].text

    def errors(self):
        """What the browser held against the page: a policy that was broken, a script that failed."""
        return [e["message"] for e in self.b.get_log("browser") if e["level"] == "SEVERE" and "status of" not in e["message"]]


@pytest.fixture
def open_page(browser):
    def go(server):
        browser.get(server.base + "/style.css")             # the origin, without the page's own code
        browser.execute_script("localStorage.clear(); sessionStorage.clear()")
        browser.get_log("browser")
        return Page(browser, server.base)
    return go


def test_files_and_policy(serve):
    server = serve({"text": "x"})
    for path, kind in (("/", "text/html"), ("/app.js", "text/javascript"), ("/style.css", "text/css"),
                       ("/icon.svg", "image/svg+xml")):
        r = httpx.get(server.base + path)
        assert r.status_code == 200 and r.headers["content-type"].startswith(kind)
        policy = r.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert "https://" not in r.text.replace("https?:", ""), "an outside resource"
        assert r.headers["x-content-type-options"] == "nosniff"


def test_send_with_the_demo_model(serve, open_page):
    page = open_page(serve())
    page.set("think", False)
    page.set("max_tokens", "24")
    page.set("temperature", "0")
    assert page.ask("hello")
    foot = page.all(".assistant footer")[-1].text
    assert "tokens" in foot and "a second" in foot
    assert "/" in page.text("#context-text") and float(page.one("#context").get_attribute("value")) > 0
    assert page.ask("and again?")
    assert "reused" in page.all(".assistant footer")[-1].text, "the second turn reads only what is new"
    assert page.errors() == []


def test_streams_and_folds_the_thinking(serve, open_page):
    page = open_page(serve({"text": "I wonder.</think>\n\nOne two three four five six", "splits": 4, "delay_ms": 150}))
    page.type("count")
    seen = set()
    page.wait(lambda: seen.add(page.text(".assistant .body")) or page.is_idle() and page.all(".assistant"))
    assert len(seen) >= 3, f"it should grow while it streams, {seen}"
    assert page.text(".assistant .body") == "One two three four five six"
    thinking = page.one(".assistant details.thinking")
    assert thinking.get_attribute("open") is None and "wonder" not in thinking.text
    thinking.find_element(By.TAG_NAME, "summary").click()
    assert "I wonder." in thinking.text
    assert page.errors() == []


def test_stop(serve, open_page):
    server = serve({"text": "no.</think>\n\nok"}, {"repeat": {"piece": "la ", "count": 5000}, "delay_ms": 50}, end="last")
    page = open_page(server)
    page.ask("first")
    for stop in (lambda: page.one("#stop").click(), lambda: page.one("body").send_keys(Keys.ESCAPE)):
        page.type("sing")
        page.wait(lambda: "la" in page.all(".assistant details.thinking")[-1].get_attribute("textContent"))
        stop()
        page.wait(page.is_idle)
        assert "Stopped." in page.all(".assistant footer")[-1].text
        page.wait(lambda: httpx.get(server.base + "/health").json()["in_flight"] == 0)
    assert page.errors() == []


def test_regenerate(serve, open_page):
    server = serve({"text": "</think>\n\nred"}, {"text": "</think>\n\nblue"})
    page = open_page(server)
    assert page.ask("a colour") == "red"
    page.one("button.again").click()
    page.wait(lambda: page.is_idle() and page.text(".assistant .body") == "blue")
    assert len(page.all(".assistant")) == 1 and len(page.all(".user")) == 1
    prompts = [r["prompt"] for r in httpx.get(server.base + "/script").json()["requests"]]
    assert prompts[0] == prompts[1]


def test_reload_keeps_the_conversation(serve, open_page):
    server = serve({"text": "hm</think>\n\n**bold** and `code`"}, {"text": "</think>\n\nsecond"})
    page = open_page(server)
    page.set("system", "Be brief.")
    page.ask("remember me")
    page.b.refresh()
    page.wait(lambda: page.all(".assistant"))
    assert page.text(".user .body") == "remember me"
    assert page.text(".assistant strong") == "bold" and page.text(".assistant code") == "code"
    page.ask("more")
    prompt = httpx.get(server.base + "/script").json()["requests"][-1]["prompt"]
    assert "Be brief." in prompt and "remember me" in prompt and "**bold**" in prompt and prompt.count("more") == 1
    page.one("#new").click()
    page.b.switch_to.alert.accept()
    page.b.refresh()
    page.wait(lambda: page.text("#model"))
    assert not page.all(".message")


@pytest.mark.parametrize("splits", ["whole", "char"])
def test_attacks_are_text(serve, open_page, splits):
    text = "\n\n".join(ATTACKS)
    page = open_page(serve({"text": f"{text}</think>\n\n{text}", "splits": splits}))
    page.type(" ".join(ATTACKS).replace("\n", " "))
    page.wait(lambda: page.all(".assistant") and page.is_idle())
    page.b.refresh()
    page.wait(lambda: page.all(".assistant"))
    assert page.b.execute_script("return window.hit") is None
    assert not page.all("#log script, #log img, #log svg, #log iframe, #log a[href^=javascript i], #log a[href^=data i]")
    assert not page.b.execute_script(
        "return [...document.querySelectorAll('#log *')].some((e) => [...e.attributes].some((a) => /^on/i.test(a.name)))")
    shown = page.one(".assistant .body").text
    assert "<script>window.hit = 1</script>" in shown and "[press](javascript:window.hit=1)" in shown
    assert page.errors() == []


def test_markdown(serve, open_page):
    text = ("# Title\n\nA *soft* and **hard** ~~gone~~ [link](https://example.org/a_(b)) \\*not\\*\n\n"
            "- one\n- two\n  1. inner\n  2. more\n\n> quoted\n\n| a | b |\n|---|--:|\n| 1 | 2 \\| 3 |\n\n---\n\n"
            "```python\nprint('<hi>')\n```\n\n```\nunfinished <b>")
    page = open_page(serve({"text": f"</think>\n\n{text}", "splits": 3}))
    page.ask("show")
    body = page.one(".assistant .body")
    has = lambda css: body.find_elements(By.CSS_SELECTOR, css)  # noqa: E731
    assert has("h3")[0].text == "Title" and has("em")[0].text == "soft" and has("strong")[0].text == "hard"
    assert has("del")[0].text == "gone" and has("a")[0].get_attribute("href") == "https://example.org/a_(b)"
    assert "noopener" in has("a")[0].get_attribute("rel") and "*not*" in body.text
    assert len(has("ul > li")) == 2 and [e.text for e in has("ul ol > li")] == ["inner", "more"]
    assert has("blockquote")[0].text == "quoted" and has("hr")
    assert [e.text for e in has("td")] == ["1", "2 | 3"]
    codes = has(".code code")
    assert codes[0].text == "print('<hi>')" and codes[1].text == "unfinished <b>"
    assert has(".code header span")[0].text == "python"
    has(".code button")[0].click()
    page.wait(lambda: has(".code button")[0].text in ("Copied", "Selected"))
    assert page.errors() == []


def test_errors_are_shown_and_can_be_tried_again(serve, open_page):
    page = open_page(serve({"text": "abc", "splits": "char", "fail_at": 2}, {"text": "</think>\n\nfine"}))
    page.ask("go")
    assert page.text(".assistant .error")
    page.one("button.again").click()
    page.wait(lambda: page.is_idle() and page.text(".assistant .body") == "fine")
    assert not page.text(".assistant .error")


def test_keyboard_and_names(serve, open_page):
    page = open_page(serve({"text": "</think>\n\nyes"}))
    page.one("#input").send_keys("one", Keys.SHIFT, Keys.ENTER, Keys.NULL, "two")
    assert page.one("#input").get_attribute("value") == "one\ntwo"
    assert page.is_idle() and not page.all(".message")
    page.one("#input").send_keys(Keys.ENTER)
    page.wait(lambda: page.all(".assistant") and page.is_idle())
    assert page.b.switch_to.active_element.get_attribute("id") == "input"
    nameless = page.b.execute_script(
        "return [...document.querySelectorAll('input, textarea, button')].filter((e) => "
        "!(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label'))).map((e) => e.outerHTML)")
    assert nameless == []
    assert page.one("#log").get_attribute("role") == "log" and page.one("#log").get_attribute("aria-busy") == "false"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(serve, open_page, scheme):
    page = open_page(serve({"text": "hm</think>\n\nyes [a](https://example.org)"}))
    page.ask("x")
    page.b.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    ratio = page.b.execute_script("""
      const parse = (c) => c.match(/[\\d.]+/g).slice(0, 3).map(Number);
      const light = (c) => { const [r, g, b] = parse(c).map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                             return .2126 * r + .7152 * g + .0722 * b; };
      const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
                              if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
      const out = {};
      for (const css of ['.user .body', '.assistant .body', '.assistant .body a', '.quiet', 'summary', '#send', '#new']) {
        const e = document.querySelector(css), a = light(getComputedStyle(e).color), b = light(ground(e));
        out[css] = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
      }
      return out;""")
    page.b.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert all(r >= 4.5 for r in ratio.values()), ratio
