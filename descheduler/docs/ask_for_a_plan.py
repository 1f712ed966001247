"""Have a policy's plan made, without a move, and print it: set BERTH_URL and BERTH_TOKEN, and name the policy."""

import json
import os
import sys
import time
import urllib.request
from typing import Any


def ask(path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """Send a request to the service, a POST if it has a body, and return the answer."""
    headers = {"Authorization": f"Bearer {os.environ['BERTH_TOKEN']}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["BERTH_URL"] + path, data, headers)  # noqa: S310 - your own service
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
    return found


def main(policy: str) -> None:
    """Print the moves of a new plan, and why it has no more."""
    name = ask("/v1/runs", {"policy": policy, "mode": "Plan"})["plan"]
    while (plan := ask(f"/v1/plans/{name}"))["phase"] == "Requested":
        time.sleep(1)
    for move in plan["moves"]:
        print(f"{move['namespace']}/{move['pod']}: {move['source']} -> {move['target']}")
    print(f"{name} is {plan['phase']}. {plan['message']}")


if __name__ == "__main__":
    main(sys.argv[1])
