"""Takes a scene at two widths and in both themes."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page

from docs.pictures.content import KEY, Site
from docs.pictures.scenes import Scene

Theme = Literal["light", "dark"]
_THEMES: tuple[Theme, ...] = ("light", "dark")
_MILLISECONDS = 120_000
# Of the 256 colours of a palette.
_HALF = 128


@dataclass(frozen=True)
class Screen:
    """A window, in the pixels of style sheets, and how many pixels of a picture each of them has."""

    width: int
    height: int
    scale: int


_SCREENS = (Screen(1440, 900, 1), Screen(390, 844, 2))


@dataclass(frozen=True)
class Camera:
    """Takes pictures of one server into a folder."""

    browser: Browser
    site: Site
    folder: Path

    def take(self, scene: Scene) -> None:
        """Writes `console-<scene>-<width>-<theme>.png`."""
        for screen in _SCREENS:
            for theme in _THEMES:
                picture = self._picture(scene, screen, theme)
                file = self.folder / f"console-{scene.name}-{screen.width}-{theme}.png"
                file.write_bytes(_small(picture))
                print(file.name, file.stat().st_size)

    def _picture(self, scene: Scene, screen: Screen, theme: Theme) -> bytes:
        context = self.browser.new_context(
            color_scheme=theme,
            viewport={"width": screen.width, "height": screen.height},
            device_scale_factor=screen.scale,
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="Europe/Berlin",
        )
        context.set_default_timeout(_MILLISECONDS)
        context.add_init_script(f"sessionStorage.setItem('peltier.key', '{KEY}')")
        context.add_init_script("localStorage.setItem('peltier.tour', 'shown')")
        page: Page = context.new_page()
        page.goto(f"{self.site.url}/console/#{scene.path.format(training=self.site.training)}")
        page.locator("h1").wait_for()
        page.get_by_role("status").filter(has_text="…").first.wait_for(state="detached")
        scene.prepare(page, self.site)
        page.mouse.move(0, 0)
        picture = page.screenshot(caret="hide")
        context.close()
        return picture


def _small(picture: bytes) -> bytes:
    """The picture with few colours, which takes a third of the bytes."""
    packed = io.BytesIO()
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    palette = _palette(image)
    colours, places = np.unique(np.asarray(image).reshape(-1, 3), axis=0, return_inverse=True)
    nearest = np.abs(colours[:, None].astype(int) - palette[None]).sum(-1).argmin(-1)
    small = Image.fromarray(nearest[places].astype(np.uint8).reshape(image.height, image.width), "P")
    small.putpalette(palette.flatten().tolist())
    small.save(packed, "PNG", optimize=True)
    return packed.getvalue()


def _palette(image: Image.Image) -> np.ndarray:
    """The commonest colours as they are, and others that are far from each other: [colours, 3]."""
    counted = sorted(image.getcolors(image.width * image.height) or [], reverse=True)
    common = [colour for _, colour in counted[:_HALF]]
    spread = image.quantize(_HALF, Image.Quantize.MAXCOVERAGE).getpalette() or []
    return np.concatenate([np.array(common), np.array(spread[: 3 * _HALF]).reshape(-1, 3)])
