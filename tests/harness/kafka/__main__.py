"""`python -m tests.harness.kafka up`: the developers' broker, in the foreground."""

import argparse
import signal
import sys
from pathlib import Path

from tests.harness.kafka.broker import RunningKafka
from tests.harness.kafka.runtime import BrokerUnavailable, cache_folder


def main() -> None:
    """Start the broker, print its URL, and stop it on Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.kafka", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["up"], default="up")
    parser.add_argument("--data", type=Path, default=cache_folder() / "dev-kafka")
    parser.add_argument("--port", type=int, default=9092, help="used when DATA is new")
    arguments = parser.parse_args()
    broker = RunningKafka(arguments.data.resolve(), port=arguments.port)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        broker.start()
        print(f"PACKHORSE_JOURNAL_URL={broker.url}", flush=True)
        print(f"Data in {broker.home}. Ctrl-C stops the broker.", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("Stopping.", flush=True)
    except BrokerUnavailable as error:
        sys.exit(str(error))
    finally:
        if broker.running:
            broker.stop()


if __name__ == "__main__":
    main()
