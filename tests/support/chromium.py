"""Tests in a real browser."""

import pytest

from benchmarks.common.chromium import CHROMIUM

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed")
