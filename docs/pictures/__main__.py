"""`python -m docs.pictures` takes the pictures of docs/images: every page, at two widths, in both themes.

It needs the console (`make console`) and `chromium` (Debian: apt-get install chromium), and takes some minutes, because
it trains an adapter first. `--only live` takes those of one page.
"""

import argparse
import tempfile
from pathlib import Path

from docs.pictures.camera import Camera
from docs.pictures.chromium import chromium
from docs.pictures.content import site
from docs.pictures.scenes import SCENES

IMAGES = Path(__file__).parents[1] / "images"


def main() -> None:
    """Takes them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="the name of a picture, without its width and theme")
    only = parser.parse_args().only
    scenes = [scene for scene in SCENES if not only or scene.name in only]
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, site(Path(scratch)) as opened, chromium() as browser:
        camera = Camera(browser, opened, IMAGES)
        for scene in scenes:
            camera.take(scene)
    total = sum(path.stat().st_size for path in IMAGES.glob("console-*.png"))
    print(f"{len(list(IMAGES.glob('console-*.png')))} pictures, {total / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
