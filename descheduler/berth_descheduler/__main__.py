"""Entry point of the descheduler service, also as `python -m berth_descheduler`.

Imports what libraries are needed only once these cannot print into the program's output any more.
"""

import gc

from berth_service.quick_imports import quick_imports
from berth_service.standard_output import keep_logs_apart


def main() -> None:
    """Run the service and end the process with its exit code."""
    keep_logs_apart()
    from berth_service.extras import Extra, require_or_end  # noqa: PLC0415 - see above

    require_or_end(Extra.DESCHEDULER, "berth-descheduler")
    with quick_imports():
        from berth_descheduler.server import main as serve  # noqa: PLC0415 - see above

    gc.freeze()  # the modules stay: no later collection looks through them
    serve()


if __name__ == "__main__":
    main()
