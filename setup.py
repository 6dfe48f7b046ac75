"""Packaging: `hts` from hts/, `hts_envs` from envs/, `hts_configs` from configs/."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

COMMANDS = (
    "train",
    "eval",
    "verify",
    "diff",
    "check",
    "doctor",
    "bench",
    "plot",
    "simulate",
    "report",
    "executor",
    "keys",
)

EXTRAS = {
    # Without its GUI dependencies: hts_envs.football needs the engine, numpy, six and these.
    "football": ["gfootball==2.10.2", "absl-py", "opencv-python-headless", "psutil", "six"],
    "atari": ["ale-py>=0.12", "opencv-python-headless"],
    "mujoco": ["mujoco>=4.0", "imageio>=2.14"],
    "envpool": ["envpool>=1.2"],
    # Files for hts-eval --video; pictures of Gymnasium's own small worlds.
    "video": ["opencv-python-headless", "pygame-ce>=2.5"],
    "plots": ["matplotlib>=3.10"],
}
DEV = [
    "coverage",
    "greenlet",
    "hypothesis",
    "mypy",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "tensorboard",
    "types-PyYAML",
]


def renamed(package: str, folder: str) -> list[str]:
    """The packages below `folder`, as they are called when installed."""
    return [package, *(f"{package}.{found}" for found in find_packages(str(HERE / folder)))]


setup(
    name="hts",
    version="0.1.0",
    description="Deterministic, high-throughput training for deep reinforcement learning",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    python_requires=">=3.11",
    packages=["hts", *(f"hts.{p}" for p in find_packages(str(HERE / "hts")))]
    + renamed("hts_envs", "envs")
    + ["hts_configs"],
    package_dir={"hts": "hts", "hts_envs": "envs", "hts_configs": "configs"},
    package_data={
        "hts": [
            "py.typed",
            "design/*.md",
            "remote/*.md",
            "remote/*/*.md",
            "remote/cpp/CMakeLists.txt",
            "remote/cpp/example/*.?pp",
            "remote/cpp/include/hts/*.hpp",
            "remote/js/*.json",
            "remote/js/*.mjs",
        ],
        "hts_envs": ["py.typed"],
        "hts_configs": ["*.yaml", "*/*.yaml"],
    },
    install_requires=[
        "blake3>=1.0",
        "gymnasium>=1.2",
        "lz4>=4.4",
        "msgpack>=1.2.4",
        "numpy>=2",
        "pyzmq>=26",
        "PyYAML>=6",
        "safetensors>=0.6",
        "torch>=2.13",
    ],
    extras_require={
        **EXTRAS,
        "all": sorted({need for needs in EXTRAS.values() for need in needs}),
        "dev": DEV,
    },
    entry_points={"console_scripts": [f"hts-{name} = hts.cli.{name}:main" for name in COMMANDS]},
)
