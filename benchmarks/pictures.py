"""The pictures of the documentation: runs made from the examples, shown by the viewer, taken in Chromium.

python benchmarks/pictures.py        # writes docs/images
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
KOFN = [sys.executable, "-m", "kofn"]
ARITHMETIC = ROOT / "examples" / "arithmetic.jsonl"
RUNS = {
    "first": [str(ARITHMETIC), "--by", "kind", "--tag", "baseline"],
    "majority": [str(ARITHMETIC), "--by", "kind", "--verdict", "majority"],
    "strict": [str(ARITHMETIC), "--extract", "pattern('(?:So the total is|####) ([0-9]+)')", "--metric", "numeric"],
}
ASKED = ["-a", "mean", "-a", "majority", "-a", "any_pass", "-a", "pass@3"]
PAGES = {  # picture -> (address, height)
    "runs": ("/", 420),
    "case": ("/run/first/-/case?id=q01&show=some_fail", 900),
    "best": ("/run/first/-/best?gain=3000", 1000),
    "compare": ("/compare?run=first&run=strict", 900),
}


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        for name, options in RUNS.items():
            subprocess.run(
                [*KOFN, "score", *options, *ASKED, "--out", str(runs / name)], check=True, capture_output=True
            )
        viewer = subprocess.Popen(
            [*KOFN, "view", "runs", "--port", "7791"], cwd=folder, stderr=subprocess.PIPE, text=True
        )
        try:
            assert viewer.stderr is not None
            print(viewer.stderr.readline().strip())
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-background-networking"]
                )
                for name, (address, height) in PAGES.items():
                    page = browser.new_page(viewport={"width": 1280, "height": height})
                    page.goto(f"http://127.0.0.1:7791{address}", wait_until="networkidle")
                    page.wait_for_timeout(800)
                    page.screenshot(path=IMAGES / f"{name}.png")
                browser.close()
        finally:
            viewer.terminate()


if __name__ == "__main__":
    main()
