"""`packhorse-console`, and `python -m packhorse_services.console`."""

from packhorse.runtime.auth import authenticator_for
from packhorse.runtime.serve import configured, run_program, run_service
from packhorse_services.console.app import console
from packhorse_services.console.settings import Settings


def serve() -> None:
    """Serve the pages over HTTP; what they show is asked of the other services."""
    settings = configured(Settings)
    run_service(console(settings, authenticator_for(settings)), settings)


def main() -> None:
    """Run the program; an error that it expects becomes one line and an exit code."""
    run_program(serve)


if __name__ == "__main__":
    main()
