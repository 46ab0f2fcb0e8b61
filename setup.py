"""The distribution `rocketpy-mq`: pure Python plus one extension built by cffi from csrc/.

Set ROCKETPY_BUILD=python to install without the compiled core: client and admin tool do not need it; name server and
broker do and say so.
"""

import os
import re
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "csrc"))  # a build front end does not put the project on the path
from objects import LIST, OBJECTS, compile_changed, write_counters_header  # noqa: E402

VERSION = re.search(r'__version__ = "([^"]+)"', (HERE / "rocketpy/__init__.py").read_text()).group(1)
NATIVE = [] if os.environ.get("ROCKETPY_BUILD") == "python" else ["csrc/build_native.py:ffi"]
SPARK_SHIMS = ["pyspark_rocketmq", "pyspark_rocketmq_store"]  # Spark finds sources by such names
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
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[*find_packages(include=["rocketpy", "rocketpy.*"]), *SPARK_SHIMS],
    package_dir={name: f"rocketpy/spark/shims/{name}" for name in SPARK_SHIMS},
    package_data={"rocketpy": ["py.typed"], "rocketpy.native": ["*.pyi"]},
    cmdclass={"build_ext": BuildExtension},
    cffi_modules=NATIVE,  # known to setuptools because pyproject.toml asks for cffi at build time
    install_requires=[
        "attrs>=23.1",
        "cffi>=1.16",
        "click>=8.1",
        "lark>=1.1.8",
        "prometheus-client>=0.19",
        "PyYAML>=6",
        "rich>=13",
        "trio>=0.24",
    ],
    extras_require={
        "compression": ["lz4>=4", "zstandard>=0.22"],
        # 4.2: admission control and availableNow; 4.3.0 is tested. matplotlib: the plots of jobs
        "spark": ["pyspark>=4.2,<4.4", "pyarrow>=18", "matplotlib>=3.8"],
        "failover": ["httpcore>=1,<2"],
        "tls": ["cryptography>=42"],  # only for the certificate of tls.test.mode.enable
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
            "trustme>=1.1",  # certificates of tests
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
