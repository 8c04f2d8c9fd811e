"""The pictures of the console in docs/images, which `python -m docs.pictures` takes."""

from pathlib import Path

from docs.pictures.scenes import SCENES

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MAX_BYTES = 4_000_000


def test_every_scene_has_its_pictures() -> None:
    """At both widths and in both themes; and no picture of a scene that is gone."""
    variants = [f"{width}-{theme}" for width in (1440, 390) for theme in ("light", "dark")]
    expected = {f"console-{scene.name}-{variant}.png" for scene in SCENES for variant in variants}
    assert {path.name for path in IMAGES.glob("console-*.png")} == expected


def test_pictures_are_small() -> None:
    """All together, because every clone has them."""
    assert sum(path.stat().st_size for path in IMAGES.glob("console-*.png")) < MAX_BYTES
