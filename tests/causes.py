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
_SERVER = "server/peltier_server"
CAUSES = (
    Cause(
        "kernels",
        (f"{_NATIVE}/*", "hatch_build.py", "tests/backbone/native/*", "tests/support/levels.py"),
        tests=(
            "tests/backbone/native/test_aarch64.py",
            "tests/backbone/native/test_emulated_models.py",
            "tests/backbone/native/test_object_code.py",
            "tests/fuzz/test_fuzzers.py",
        ),
        also=(
            "tests/backbone/native",
            "tests/adapters_store/test_contract.py",
            "tests/adapters_store/test_reference.py",
            "tests/adapters_store/test_reference_t5.py",
        ),
        programs=("gcc", "qemu-user", "libc6-arm64-cross"),
    ),
    Cause(
        "kernels of a GPU",
        (f"{_ADAPTERS}/gpu/*", f"{_ADAPTERS}/batch/*"),
        tests=("tests/adapters_store/gpu/kernels/test_graphs.py", "tests/adapters_store/gpu/test_kernels.py"),
        also=("tests/adapters_store/gpu/kernels", "tests/adapters_store/gpu/test_device_work.py"),
    ),
    Cause(
        "importers",
        (f"{_ADAPTERS}/importers/*", "tests/adapters_store/importers/foreign/*"),
        tests=("tests/adapters_store/importers/test_parity.py",),
    ),
    Cause(
        "readers of foreign bytes",
        (f"{_ADAPTERS}/artifact/*", f"{_ADAPTERS}/importers/*", f"{_SERVER}/http/*", f"{_SERVER}/protocols/*",
         f"{_SERVER}/extensions/*"),
        tests=("tests/fuzz/test_fuzzers.py",),
    ),
    Cause(
        "registry",
        ("adapters_store/peltier_store/*", "tests/support/postgres_server.py", "tests/adapters_store/store/*",
         f"{_SERVER}/catalog/s*.py", "tests/crash/test_crash_points.py", "tests/server/catalog/test_sync.py",
         "tests/server/routes/test_administration.py"),
        also=(
            "tests/adapters_store/store",
            "tests/crash/test_crash_points.py",
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
            "tests/test_docs.py",
            "tests/test_methods.py",
            "tests/test_pictures.py",
            "tests/test_reference.py",
            "tests/test_site.py",
        ),
        also=("tests/test_contributing.py",),
        programs=("chromium", "curl"),
    ),
    Cause(
        "names that documents show",
        (f"{_SERVER}/*settings*.py", f"{_SERVER}/routes/*", f"{_SERVER}/protocols/*", f"{_SERVER}/extensions/*",
         f"{_SERVER}/metrics/*",
         "*/errors.py", "*command*", "client/peltier_client/*",
         f"{_ADAPTERS}/presets/*", f"{_ADAPTERS}/parts/*", f"{_ADAPTERS}/spec/*"),
        also=("tests/test_methods.py", "tests/test_reference.py"),
    ),
    Cause(
        "deployment",
        ("deploy/*", "Dockerfile", ".dockerignore", "docker-compose.yml", "tests/support/container_image.py"),
        tests=("tests/test_image.py", "tests/test_processes.py"),
        programs=("mmdebstrap", "podman", "prometheus", "runc"),
    ),
    Cause(
        "settings and metrics of a deployment",
        ("deploy/*", "docker-compose.yml", f"{_SERVER}/*settings*.py", f"{_SERVER}/metrics/*",
         f"{_SERVER}/extensions/*"),
        tests=("tests/test_deploy.py", "tests/test_kubernetes.py", "tests/test_monitoring.py"),
        programs=("prometheus",),
    ),
    Cause(
        "balancer",
        ("deploy/haproxy.cfg", "tests/support/balancer.py", "tests/support/rolling_restart.py",
         "client/peltier_client/protocol/session.py"),
        tests=("tests/test_affinity.py", "tests/test_rolling_restart.py"),
        programs=("haproxy",),
    ),
    Cause(
        "console",
        ("console/*", f"{_SERVER}/console/*"),
        tests=("tests/console",),
        targets=("check-console",),
        programs=("chromium", "haproxy", "npm"),
    ),
    Cause(
        "packages",
        ("pyproject.toml", "constraints.txt", "floors.txt", "held.txt", "hatch_build.py"),
        also=("tests/test_dependencies.py", "tests/test_imports.py", "tests/test_packaging.py"),
        targets=("check-floors", "check-client"),
    ),
    Cause("benchmarks", ("benchmarks/*",), also=("tests/test_benchmarks.py",)),
    Cause("replicas by Ray", (f"{_SERVER}/extensions/ray/*",), tests=("tests/server/extensions/ray",)),
    Cause(
        "processes of training",
        ("training/peltier_training/executor/*", "training/peltier_training/service/*",
         "training/peltier_training/sweep/*"),
        tests=("tests/server/protocols/openai/test_trained_models.py",),
        also=("tests/training/service", "tests/training/sweep"),
    ),
    Cause(
        "processes of a server",
        (f"{_SERVER}/http/*", f"{_SERVER}/app.py", f"{_SERVER}/cli.py", "tests/crash/*"),
        tests=("tests/server/test_hostile_requests.py",),
        also=("tests/crash", "tests/server/http"),
        programs=("postgresql",),
    ),
    Cause(
        "memory of a process",
        ("backbone/peltier_backbone/machine/*", f"{_ADAPTERS}/artifact/weights.py"),
        also=("tests/backbone/machine", "tests/adapters_store/artifact/test_weights.py"),
    ),
    Cause(
        "rates",
        (f"{_SERVER}/quotas/*",),
        also=("tests/server/quotas",),
        programs=("redis-server",),
    ),
    Cause("choice of tests", ("tests/changed.py",), tests=("tests/test_choice_of_base.py",)),
    Cause("known faults", ("tests/mutants.py",), also=("tests/test_mutants.py",)),
    Cause("examples", ("examples/*", "docs/examples/*"), tests=("tests/test_examples.py",)),
)  # fmt: skip

# Files that only `make test-all` runs.
ONLY_IN_ALL = (
    "tests/server/test_browser.py",
    "tests/server/test_t5_mini.py",
    "tests/training/report/test_browser.py",
    "tests/training/sweep/test_ray_executor.py",
)
