"""Tests in a real browser."""

import pytest

from docs.pictures.chromium import CHROMIUM

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed")
