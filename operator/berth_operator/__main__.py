"""Entry point of the operator, also as `python -m berth_operator`.

Libraries are imported inside `main`, after their logs have been kept apart from the program's own output.
"""

import gc

from berth_service.quick_imports import quick_imports
from berth_service.standard_output import keep_logs_apart


def main() -> None:
    keep_logs_apart()
    from berth_service.extras import Extra, require_or_end  # noqa: PLC0415 - see above

    require_or_end(Extra.OPERATOR, "berth-operator")
    with quick_imports():
        from berth_operator.cli import main as operate  # noqa: PLC0415 - see above

    gc.freeze()  # the modules stay for ever, so no later collection has to look through them
    operate()


if __name__ == "__main__":
    main()
