"""Pages in a real browser: what it shows, measures and complains about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--virtual-time-budget=3000 --enable-logging=stderr"
).split()
MEASURE = """<script>
const touch = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
                     && a.top < b.bottom - 1 && b.top < a.bottom - 1;
addEventListener("load", () => {
  const shown = [...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().width);
  const clashes = [], small = [];
  const captions = [...document.querySelectorAll(".caption, caption, figcaption")];
  const cut = captions.filter(c => c.getBoundingClientRect().right > innerWidth + 1)
                      .map(c => c.textContent);
  for (const svg of shown) {
    const texts = [...svg.querySelectorAll("text")];
    const boxes = texts.map(t => t.getBoundingClientRect());
    const right = document.documentElement.clientWidth;
    boxes.forEach((a, i) => {
      if (a.left < 0 || a.right > right) clashes.push(texts[i].textContent + " outside");
      if (parseFloat(getComputedStyle(texts[i]).fontSize) * svg.getScreenCTM().a < 9)
        small.push(texts[i].textContent);
      boxes.slice(i + 1).forEach((b, j) => {
        if (touch(a, b)) clashes.push(texts[i].textContent + " / " + texts[i + 1 + j].textContent);
      });
    });
  }
  parent.postMessage({inner: innerWidth, scroll: document.documentElement.scrollWidth,
                      figures: shown.length, clashes, small, cut}, "*");
});
</script>"""
COLLECT = """<!DOCTYPE html><html><body><script>
const seen = []; addEventListener("message", m => {
  seen.push(m.data); document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script><pre id="seen"></pre>FRAMES</body></html>"""


def browse(tmp_path, page, *arguments):
    profile = tmp_path / "profile"
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", *arguments, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    shutil.rmtree(profile, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    return done.stdout


def measure(tmp_path, page):
    """What the page looks like from inside, in windows of 400 and 1200 pixels."""
    text = page.read_text()
    measured = re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", f"{MEASURE}</body>")
    (tmp_path / "measured.html").write_text(measured)
    frames = "".join(
        f'<iframe src="measured.html" style="border:0;width:{width}px;height:900px"></iframe>'
        for width in (400, 1200)
    )
    (tmp_path / "frames.html").write_text(COLLECT.replace("FRAMES", frames))
    dom = browse(tmp_path, tmp_path / "frames.html", "--dump-dom", "--window-size=1300,1000")
    seen = json.loads(re.search(r'<pre id="seen">(.*?)</pre>', dom, flags=re.S)[1])
    assert sorted(window["inner"] for window in seen) == [400, 1200]
    return seen


def in_browser(test):
    """A test that is skipped where there is no Chromium."""
    return pytest.mark.browser(pytest.mark.skipif(BROWSER is None, reason="no Chromium here")(test))
