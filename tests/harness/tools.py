"""`python -m tests.harness.tools` makes what tests run and no package index has: once a machine.

A test makes what is missing, too; here it takes no test's time.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.harness.client_runners import LANGUAGES, installed
from tests.harness.client_tools import node_modules
from tests.harness.filevault import real_packages
from tests.harness.kafka import runtime
from tests.harness.s3 import versitygw

_HERE = Path(__file__).parent
TOOLS: dict[str, Callable[[], object]] = {
    "the Kafka broker": runtime.jars,
    "the S3 server": versitygw,
    "axe, for the console": partial(node_modules, "axe", _HERE / "axe"),
    "an identity provider": partial(node_modules, "oidc", _HERE / "oidc"),
    "content packages": real_packages,
    **{f"the client in {language}": partial(installed, language) for language in LANGUAGES},
}


def main() -> None:
    """Make all that is missing; end with 1 and what to do where one can't be made."""
    with ThreadPoolExecutor(2) as making:
        made = {name: making.submit(make) for name, make in TOOLS.items()}
    failed = {name: error for name, one in made.items() if (error := one.exception())}
    for name, error in failed.items():
        print(f"{name}: {error}", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
