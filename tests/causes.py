"""Test files that a few paths are the only cause of, which the gate leaves out and `make test-changed` chooses."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Cause:
    """If a path matches one of `paths`, the files `tests` run, which the gate never imports, and the places `also`.

    Patterns are those of `fnmatch`, so `*` matches `/` too. With a `mark`, only its tests of `also` run. `targets` are
    targets of make that run too, and `programs` the packages of Debian that all of these need.
    """

    name: str
    paths: tuple[str, ...]
    tests: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    mark: str = ""
    targets: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def matches(self, path: str) -> bool:
        """Whether a change of `path` is a cause; each test file is a cause of itself."""
        own = any(path == place or path.startswith(f"{place}/") for place in self.tests)
        return own or any(fnmatchcase(path, pattern) for pattern in self.paths)


_NATIVE = "backbone/peltier_backbone/native"
_ADAPTERS = "adapters_store/peltier_adapters"
CAUSES = (
    Cause(
        "kernels",
        (f"{_NATIVE}/*.[ch]", f"{_NATIVE}/levels.py", "hatch_build.py"),
        tests=(
            "tests/backbone/native/test_aarch64.py",
            "tests/backbone/native/test_emulated_models.py",
            "tests/backbone/native/test_object_code.py",
        ),
        also=("tests/backbone/native", "tests/fuzz/test_fuzzers.py"),
        programs=("qemu-user", "libc6-arm64-cross"),
    ),
    Cause(
        "kernels of a GPU",
        (f"{_ADAPTERS}/ops/kernels/*", f"{_ADAPTERS}/ops/triton*", f"{_ADAPTERS}/graphs/*"),
        tests=("tests/adapters_store/ops/kernels/test_graphs.py", "tests/adapters_store/ops/test_kernels.py"),
        also=("tests/adapters_store/ops/kernels", "tests/adapters_store/test_device_work.py"),
    ),
    Cause("importers", (f"{_ADAPTERS}/importers/*",), tests=("tests/adapters_store/importers/test_parity.py",)),
    Cause(
        "registry",
        ("adapters_store/peltier_store/registry/*", "benchmarks/common/postgres_server.py", "tests/*/registry/*"),
        also=(
            "tests/adapters_store/store",
            "tests/server/catalog/test_sync.py",
            "tests/server/routes/test_administration.py",
        ),
        mark="postgres",
        programs=("postgresql",),
    ),
    Cause(
        "documents",
        ("*.md", "docs/*"),
        tests=(
            "tests/test_contributing.py",
            "tests/test_docs.py",
            "tests/test_methods.py",
            "tests/test_pictures.py",
            "tests/test_reference.py",
            "tests/test_site.py",
        ),
        programs=("chromium", "curl"),
    ),
    Cause(
        "deployment",
        ("deploy/*", "Dockerfile", ".dockerignore", "docker-compose.yml", "tests/support/container_image.py"),
        tests=("tests/test_deploy.py", "tests/test_image.py", "tests/test_kubernetes.py", "tests/test_processes.py"),
        programs=("mmdebstrap", "podman", "prometheus", "runc"),
    ),
    Cause(
        "console",
        ("console/*",),
        tests=("tests/console",),
        targets=("check-console",),
        programs=("chromium", "npm"),
    ),
    Cause(
        "packages",
        ("pyproject.toml", "constraints.txt", "floors.txt", "held.txt"),
        tests=("tests/test_dependencies.py",),
        also=("tests/test_packaging.py",),
        targets=("check-floors", "check-client"),
    ),
    Cause(
        "benchmarks",
        ("benchmarks/*",),
        tests=("tests/test_benchmarks.py", "tests/test_fleet_model.py", "tests/test_guard.py"),
    ),
    Cause(
        "replicas by Ray",
        ("server/peltier_server/cluster/*",),
        tests=("tests/server/cluster",),
    ),
    Cause(
        "processes of training",
        ("training/peltier_training/service/*", "training/peltier_training/sweep/*", "training/*/shared_steps.py"),
        also=("tests/training/service", "tests/training/sweep", "tests/training/fit/test_shared_steps.py"),
    ),
    Cause("examples", ("examples/*",), tests=("tests/test_examples.py",)),
)

# Files that only `make test-all` runs.
NIGHTLY = (
    "tests/server/protocols/openai/test_trained_models.py",
    "tests/server/test_browser.py",
    "tests/server/test_hostile_requests.py",
    "tests/server/test_t5_mini.py",
    "tests/test_affinity.py",
    "tests/test_monitoring.py",
    "tests/test_rolling_restart.py",
    "tests/training/report/test_browser.py",
    "tests/training/sweep/test_ray_runner.py",
)
