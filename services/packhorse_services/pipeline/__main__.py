"""`packhorse-pipeline`, `python -m packhorse_services.pipeline`, and what `spark-submit` starts."""

import sys

import stamina

from packhorse.runtime.extras import how_to_install
from packhorse.runtime.startup import WRONG_CONFIGURATION, plain_refusals, typed
from packhorse_services.pipeline.engine.exit_codes import PROGRAM, plain_ends, remember_typed
from packhorse_services.pipeline.program import program

_EXTRA = frozenset({"pyspark", "py4j", "pyarrow", "deltalake", "matplotlib", "numpy", "pandas"})


def main() -> None:
    """Run the program; an error that it expects becomes one line and an exit code."""
    name = typed(PROGRAM, "packhorse_services.pipeline")
    remember_typed(name)
    stamina.instrumentation.set_on_retry_hooks([])  # they would print to stdout, which is data's
    with plain_refusals(), plain_ends():
        try:
            named = (one for one in sys.argv[1:] if not one.startswith("-"))
            program(next(named, ""))(prog_name=name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _EXTRA:
                raise
            sys.stderr.write(f"error: {error.name} is missing: {how_to_install('pipeline')}\n")
            raise SystemExit(WRONG_CONFIGURATION) from None


if __name__ == "__main__":
    main()
