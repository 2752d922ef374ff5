"""Writes the OpenAPI document of the console's API, from its endpoints and models. Called by `make crds`."""

import sys

from make_crds import ROOT
from tailrace.cli.console import openapi

FILE = ROOT / "docs" / "console-api.json"


def main() -> int:
    FILE.write_text(openapi.text(), encoding="utf-8")
    print(f"console: wrote {FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
