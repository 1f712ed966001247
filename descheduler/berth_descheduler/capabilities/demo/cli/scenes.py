"""Short scenes for `berth demo --scene`: each shows one feature on the sandbox and checks what it has shown.

A scene is a function that plays on a `Stage` and returns the sentence of what was shown; it raises `SceneError` where
that is not true. To add one, write a module with the function and its `Scene`, and name that in `SCENES`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth_descheduler.capabilities.demo.cli.lent_scene import LENT
from berth_descheduler.capabilities.demo.cli.queues_scene import QUEUES_SCENE
from berth_descheduler.capabilities.demo.cli.scenario import Narrator, running_services
from berth_descheduler.capabilities.demo.cli.stage import Scene, SceneError, Stage
from berth_descheduler.capabilities.demo.cli.starving_scene import STARVING
from berth_descheduler.capabilities.demo.cli.window_scene import WINDOW
from berth_kube import connect
from berth_sandbox.sandbox import Sandbox

_TINY_CLUSTER: Final = ("slots=none", "share=none", "maxFencedNodes=100%")
"""Limits of the operator: its defaults are shares of clusters with many nodes."""


@dataclass(frozen=True, slots=True)
class SceneResult:
    """What a scene has shown, or what did not happen."""

    scene: str
    shown: bool
    sentence: str
    seconds: float


def play_scene(name: str, sandbox: Sandbox, narrator: Narrator) -> SceneResult:
    """Play a scene on a sandbox with its nodes; raises `ServiceError` if a service ends."""
    scene = SCENES[name]
    started = time.monotonic()
    narrator.say(scene.about)
    limits = ",".join(_TINY_CLUSTER)
    options = (f"--limit={limits}", f"--cluster-limit={limits}")
    with (
        connect(kubeconfig=str(sandbox.kubeconfig), user_agent="berth-demo") as client,
        running_services(sandbox, narrator, operator_options=options) as services,
    ):

        def require_services() -> None:
            for service in services:
                service.require_running()

        try:
            sentence, shown = scene.play(Stage(sandbox, client, narrator.say, require_services)), True
        except SceneError as error:
            sentence, shown = str(error), False
    return SceneResult(name, shown, sentence, round(time.monotonic() - started, 1))


SCENES: Final[Mapping[str, Scene]] = {
    "lent": LENT,
    "queues": QUEUES_SCENE,
    "starving": STARVING,
    "window": WINDOW,
}
"""By the value of `--scene`."""
