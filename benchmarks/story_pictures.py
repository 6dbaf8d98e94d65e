"""The pictures of the stories: the commands of each page are run, and the page of kofn's that they write is taken.

python benchmarks/story_pictures.py              # writes docs/images/stories, all of it
python benchmarks/story_pictures.py retrieval    # one story
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images" / "stories"
WIDE = 1200
PAGES = {  # story -> (the page its commands write, the heading where the picture begins, its height)
    "self-consistency": ("vote.html", "Best of n", 610),
    "support-message": ("selectors.html", "Differences", 345),
    "retrieval": ("search.html", "Differences", 845),
    "programs": ("runs/ledger/partial/budgets/report.html", "", 665),
    "actor-critic": ("adapters.html", "Differences", 585),
}


def run_page(story: str, folder: Path) -> None:
    """Every command of a story's page, in a folder with the examples."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    text = (ROOT / "docs" / "stories" / f"{story}.md").read_text(encoding="utf-8")
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            subprocess.run(command, shell=True, cwd=folder, capture_output=True, env=env, check=False)  # noqa: S602 - ours


def take(browser: Any, page: Path, picture: Path, heading: str, height: int) -> None:
    """A part of a page from a heading on, as a reader with a window of that width sees it."""
    shown = browser.new_page(viewport={"width": WIDE, "height": 3000})
    shown.goto(page.as_uri(), wait_until="networkidle")
    shown.wait_for_timeout(800)
    top = shown.get_by_role("heading", name=heading, exact=True).first.bounding_box()["y"] - 16 if heading else 0
    shown.screenshot(path=picture, clip={"x": 0, "y": top, "width": WIDE, "height": height})
    shown.close()


def main(stories: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-background-networking"]
        )
        for story in stories or list(PAGES):
            page, heading, height = PAGES[story]
            with tempfile.TemporaryDirectory() as folder:
                run_page(story, Path(folder))
                take(browser, Path(folder) / page, IMAGES / f"{story}.png", heading, height)
            print(f"{story}: {(IMAGES / f'{story}.png').stat().st_size:,} bytes")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
