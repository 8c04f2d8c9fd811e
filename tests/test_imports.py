import subprocess
import sys

IMPORT_ALL = """
import importlib, pathlib, pkgutil
for top in ("peltier_backbone", "peltier_adapters", "peltier_server", "peltier_training", "peltier_client"):
    package = importlib.import_module(top)
    for found in pkgutil.walk_packages(package.__path__, f"{top}."):
        is_code = pathlib.Path(found.module_finder.path, found.name.rpartition(".")[2]).with_suffix(".py").exists()
        if is_code and ".migrations." not in found.name and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""


def test_every_module_is_imported_without_a_warning() -> None:
    """With what the extras bring; a warning tells of a version that does not fit another."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
