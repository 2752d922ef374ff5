"""`python3.11 requirements.py [EXTRA ...]`: the project's dependencies and those of the extras, a line each, for pip.

Used by the Dockerfile, which installs them in a layer of their own, before the project's sources are there. Standard
library only; reads pyproject.toml from the folder it is called in.
"""

import sys
import tomllib
from pathlib import Path


def main(extras: list[str]) -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    print(*project["dependencies"], *(line for name in extras for line in optional[name]), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
