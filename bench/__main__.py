"""Command line of the measurements: `python -m bench [NAME ...]`; the default is all."""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial

from bench import early_reject, gateway, large, latency, nights, providers, searchqa, truth, world
from skillopt_airflow.core.errors import SkillOptError

MEASUREMENTS: Mapping[str, Callable[[], None]] = {
    "early_reject": early_reject.measure,
    "gateway": gateway.measure,
    "large": large.measure,
    "latency": latency.measure,
    "nights": nights.measure,
    "providers": providers.measure,
    "searchqa": searchqa.measure,
    "truth": truth.measure,
    **{form.name: partial(world.measure, form) for form in world.FORMS},
}


def main(arguments: list[str]) -> int:
    """Run the named measurements; return 0 if all succeed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(MEASUREMENTS)}")
    names = parser.parse_args(arguments).names or list(MEASUREMENTS)
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"unknown measurement: {', '.join(unknown)}. Available: {', '.join(MEASUREMENTS)}")
    succeeded = [_run(name) for name in names]
    return 0 if all(succeeded) else 1


def _run(name: str) -> bool:
    """Return whether the measurement succeeds; an error doesn't stop the others."""
    try:
        MEASUREMENTS[name]()
    except SkillOptError as error:
        print(f"error: {name}: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
