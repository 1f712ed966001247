"""Entry points of `berth` and of kubectl's plugin, also as `python -m berth_descheduler.cli`.

Import what libraries are needed only once these cannot print into the program's output any more.
"""

from berth_service.quick_imports import quick_imports
from berth_service.standard_output import keep_output_apart


def main() -> None:
    """Run the command line and end the process with its exit code."""
    keep_output_apart()
    with quick_imports():
        from berth_descheduler.cli.main import main as run  # noqa: PLC0415 - see above

    run()


def complete_for_kubectl() -> None:
    """Print what `kubectl` offers after `kubectl berth …`."""
    keep_output_apart()
    from berth_descheduler.cli.kubectl_completion import complete_for_kubectl as complete  # noqa: PLC0415 - see above

    complete()


if __name__ == "__main__":
    main()
