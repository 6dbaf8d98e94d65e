"""The pictures of the documentation: runs made from the examples, shown by the viewer, taken in Chromium.

python benchmarks/pictures.py                # writes docs/images, all of it
python benchmarks/pictures.py report best    # two of them
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
    "report": ("majority/report.html", 1150),  # a file of the run, which the viewer would only download
}


def main(names: list[str]) -> None:
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
                for name in names or PAGES:
                    address, height = PAGES[name]
                    page = browser.new_page(viewport={"width": 1280, "height": height})
                    own = f"http://127.0.0.1:7791{address}"
                    page.goto(own if address.startswith("/") else (runs / address).as_uri(), wait_until="networkidle")
                    page.wait_for_timeout(800)
                    page.screenshot(path=IMAGES / f"{name}.png")
                browser.close()
        finally:
            viewer.terminate()


if __name__ == "__main__":
    main(sys.argv[1:])
