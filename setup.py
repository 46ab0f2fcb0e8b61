"""The distribution `rocketpy-mq`: pure Python plus one extension built by cffi from csrc/, the compiled core.

Client, admin tool and what Spark does in Python need no core; name server and broker do, and say so. ROCKETPY_BUILD is

    unset     with the core on Linux where a C compiler works; else without it, which a line on standard error says
    core      with the core, or not at all
    python    without it, on any platform
"""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "csrc"))  # a build front end does not put the project on the path
from objects import LIST, OBJECTS, command, compile_changed, write_counters_header  # noqa: E402

VERSION = re.search(r'__version__ = "([^"]+)"', (HERE / "rocketpy/__init__.py").read_text()).group(1)
SPARK_SHIMS = ["pyspark_rocketmq", "pyspark_rocketmq_store"]  # Spark finds sources by such names


def obstacle() -> str:
    """Return why the core cannot be compiled here; empty: it can."""
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    compiler = command(["-I" + sysconfig.get_path("include"), "-x", "c", "-fsyntax-only", "-"])
    try:
        subprocess.run(compiler, input="#include <Python.h>\n", capture_output=True, text=True, check=True)
    except OSError as exc:
        return f"there is no C compiler ({exc.strerror}: {compiler[0]})"
    except subprocess.CalledProcessError as exc:
        return f"{compiler[0]} cannot compile with Python.h: {exc.stderr.strip().partition(chr(10))[0]}"
    return ""


def parts() -> list[str]:
    """Return what cffi is to build, as ROCKETPY_BUILD says. Raises: SystemExit: it has no such value."""
    wanted = os.environ.get("ROCKETPY_BUILD", "")
    if wanted not in {"", "core", "python"}:
        raise SystemExit(f"rocketpy: ROCKETPY_BUILD is 'core', 'python' or unset, not {wanted!r}")
    if wanted == "python":
        return []
    if wanted == "" and (reason := obstacle()):
        print(
            f"rocketpy: built without the compiled core, which broker and name server need: {reason}", file=sys.stderr
        )
        return []
    return ["csrc/build_native.py:ffi"]


NATIVE = parts()
if NATIVE:
    write_counters_header()


class BuildExtension(build_ext):
    """Compile csrc/ in parallel and link the objects into the extension that cffi describes."""

    def build_extension(self, ext: Extension) -> None:
        ext.extra_objects = compile_changed(OBJECTS)
        ext.depends = [*ext.depends, *ext.extra_objects, str(OBJECTS / LIST)]
        super().build_extension(ext)


setup(
    name="rocketpy-mq",
    version=VERSION,
    description="An Apache RocketMQ 4.x compatible broker, name server, client and admin tool",
    long_description=(HERE / "README.md").read_text() if (HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0 AND MIT",  # MIT: uPlot, which draws the charts of the console
    license_files=["LICENSE", "NOTICE", "rocketpy/console/static/vendor/uplot/LICENSE"],
    python_requires=">=3.11",
    packages=[*find_packages(include=["rocketpy", "rocketpy.*"]), *SPARK_SHIMS],
    package_dir={name: f"rocketpy/spark/shims/{name}" for name in SPARK_SHIMS},
    package_data={
        "rocketpy": ["py.typed"],
        "rocketpy.native": ["*.pyi"],
        "rocketpy.bench": ["scenarios/*.yaml", "driver/*.[ch]"],
        "rocketpy.console": ["templates/*.html", "static/*", "static/vendor/uplot/*"],
    },
    cmdclass={"build_ext": BuildExtension},
    cffi_modules=NATIVE,  # known to setuptools because pyproject.toml asks for cffi at build time
    # The extension has the stable ABI: one wheel for Python 3.11 and all that follow.
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if NATIVE else {},
    install_requires=[
        "attrs>=23.1",
        'cffi>=1.16; sys_platform == "linux"',  # of the compiled core alone
        "click>=8.1",
        "lark>=1.1.8",
        "prometheus-client>=0.19",
        "PyYAML>=6",
        "rich>=13",
        "trio>=0.24",
    ],
    extras_require={
        "lz4": ["lz4>=4"],  # bodies compressed so
        "zstd": ["zstandard>=0.22"],
        "opentelemetry": ["opentelemetry-api>=1.20"],  # spans of sends and deliveries
        # serializers of rocketpy.client.typed
        "attrs": ["cattrs>=23.1"],
        "pydantic": ["pydantic>=2"],
        "protobuf": ["protobuf>=4"],
        "avro": ["fastavro>=1.9"],  # bodies in Avro, beside the extra spark
        # 4.2: admission control and availableNow; 4.3.0 is tested. matplotlib: the plots of jobs
        "spark": ["pyspark>=4.2,<4.4", "pyarrow>=18", "matplotlib>=3.8"],
        "delta": ["deltalake>=1.1"],  # `rocketpy pipeline archive --format delta`, beside the extra spark
        "iceberg": ["pyiceberg[pyiceberg-core,sql-sqlite]>=0.12,<0.13"],  # compaction uses its internals
        # starlette before 0.49.1: quadratic time for a header Range of many parts (CVE-2025-62727)
        "console": ["jinja2>=3.1.5", "starlette>=0.49.1", "uvicorn>=0.30"],
        "failover": ["httpcore>=1,<2"],
        "bench": ["hdrhistogram>=0.10", "matplotlib>=3.8"],  # `rocketpy bench`
        "bench-neighbours": ["aiokafka>=0.13", "nats-py>=2.6"],  # beside the extra bench: --target nats, kafka
        "tls": ["cryptography>=42"],  # only for the certificate of tls.test.mode.enable
        "site": ["mkdocs-material>=9.6", "mkdocstrings[python]>=1"],  # `make site`
        "dev": [
            "pytest>=8",
            "pytest-rerunfailures>=14",
            "pytest-xdist>=3.6",
            "hypothesis>=6",
            "httpcore>=1,<2",
            "lz4>=4",
            "zstandard>=0.22",
            "ruff==0.17.6",  # both formatters are pinned: another version formats otherwise
            "clang-format==23.1.5",
            "mypy>=1.8",
            "types-cffi",
            "types-PyYAML",
            "hdrhistogram>=0.10",
            "matplotlib>=3.8",
            "jinja2>=3.1.5",  # the console
            "starlette>=0.49.1",
            "uvicorn>=0.30",
            "trustme>=1.1",  # certificates of tests
            "aiosmtpd>=1.4.6",  # takes the mails of alarms
            "cattrs>=23.1",  # the serializers of typed topics
            "protobuf>=4",
            "pydantic>=2",
            "django>=5",  # the examples of the client
            "fastapi>=0.110",
            "flask>=3",
            "opentelemetry-sdk>=1.20",
            "uvloop>=0.19; sys_platform != 'win32'",  # blocking clients run on it where it is
        ],
    },
    entry_points={
        "console_scripts": [
            "rocketpy = rocketpy.cli.main:rocketpy",
            "mqnamesrv = rocketpy.cli.main:mqnamesrv",
            "mqbroker = rocketpy.cli.main:mqbroker",
            "mqadmin = rocketpy.cli.main:mqadmin",
        ]
    },
)
