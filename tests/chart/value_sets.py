"""Owns the table of values with which the chart is rendered, each named by what is special about it.

It does not own what every rendering must be.
"""

from typing import Any, Final

EVERYTHING: Final[dict[str, Any]] = {
    "image": {"prefix": "registry.example/team", "tag": "1.2.3", "pullPolicy": "Always", "pullSecrets": ["a", "b"]},
    "operator": {
        "digest": "sha256:" + "0" * 64,
        "replicas": 3,
        "options": {
            "image": "pause:1",
            "webhookPort": 10443,
            "webhookUrl": "https://berth.example:10443",
            "certificateLife": "1h30m",
            "drainSeconds": 2.5,
            "retention": 2592000,
            "unschedulableSeconds": 0,
            "handoversAtOnce": 7,
            "limit": "slots=none,share=none",
            "namespaceLimit": {"team-a": "slots=50,share=10%", "team-b": "cpu=64"},
            "clusterLimit": "slots=9,share=none",
            "highestPriority": 1000,
            "controlPlaneNodes": True,
            "noDryRuns": True,
            "namespaceTolerations": {"*": "dedicated", "team-a": "gpu,spot"},
            "guardedPriorityClasses": "precious",
            "leaseSeconds": 20,
            "sweepSeconds": 7.5,
            "workers": 3,
            "logLevel": "debug",
        },
        "healthPort": 18080,
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example"}],
        "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"pool": "system"},
        "affinity": {"podAntiAffinity": {}},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "b"},
    },
    "descheduler": {
        "replicas": 3,
        "options": {
            "timeLimit": "none",
            "noExact": True,
            "controlPlaneNodes": True,
            "seed": -1,
            "reserveTimeout": "61s",
            "evictTimeout": "121s",
            "landTimeout": "122s",
            "readyTimeout": "123s",
            "pendingWait": "2m",
            "leaseSeconds": 30,
            "planRetention": "none",
            "fragmentationInterval": "none",
            "fragmentationShape": ["cpu=4,memory=8Gi", "cpu=1"],
            "logLevel": "warning",
        },
        "rest": {"tlsSecret": "berth-rest-tls", "port": 18443, "audiences": ["berth", "people"]},
        "healthPort": 18081,
        "terminationGraceSeconds": 600,
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example"}],
        "resources": {"limits": {"memory": "2Gi"}},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"pool": "system"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "b"},
    },
    "policies": {
        "nightly": {
            "trigger": {"cron": "0 2 * * *", "timeZone": "Europe/Berlin"},
            "mode": "Auto",
            "profiles": [
                {
                    "name": "full",
                    "pluginConfig": [{"name": "Defragmentation", "args": {"strategy": "Consolidate"}}],
                    "plugins": {"balance": {"enabled": ["Defragmentation"]}},
                }
            ],
            "limits": {"maxMoves": 100},
        },
        "on-request": {"profiles": [{"name": "low", "plugins": {"balance": {"enabled": ["Defragmentation"]}}}]},
    },
    "admissionPolicies": {
        "actions": ["Deny", "Audit"],
        "images": ["mirror.example/pause:1"],
        "nodeAnnotations": ["team.example/remove"],
    },
    "networkPolicy": {
        "apiServerPorts": [7443],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}],
        "restFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    },
    "monitoring": {
        "serviceMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prometheus"}},
        "rules": {"enabled": True, "longestCycleAgeSeconds": 2592000, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True, "labels": {"folder": "berth"}},
    },
}
"""Every value, and none as it is by default, but for what would leave something out or does not go with the rest."""

VALUE_SETS: Final[dict[str, dict[str, Any]]] = {
    "the defaults": {},
    "every value": EVERYTHING,
    "one operator, one descheduler": {"operator": {"replicas": 1}, "descheduler": {"replicas": 1}},
    "no descheduler": {"descheduler": {"enabled": False}, "monitoring": EVERYTHING["monitoring"]},
    "no network policies": {"networkPolicy": {"enabled": False}},
    "no admission policies": {"admissionPolicies": {"enabled": False}},
    "empty maps": {
        "operator": {"resources": {}, "options": {"limit": "", "image": "", "guardedPriorityClasses": ""}},
        "descheduler": {"resources": {}},
        "monitoring": {"dashboard": {"enabled": True, "labels": {}}},
    },
    "a part of another chart": {"global": {"anything": 1}},
}

REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "an unknown value": ({"operators": {}}, "operators"),
    "an unknown value of a service": ({"operator": {"replica": 2}}, "replica"),
    "an option that the program has not": ({"descheduler": {"options": {"once": True}}}, "once"),
    "an option of the other program": ({"operator": {"options": {"maxMoves": 1}}}, "maxMoves"),
    "no operator at all": ({"operator": {"replicas": 0}}, "replicas"),
    "a number as text": ({"operator": {"replicas": "2"}}, "replicas"),
    "a text as number": ({"image": {"tag": 1}}, "tag"),
    "a list as text": ({"descheduler": {"options": {"fragmentationShape": "cpu=1"}}}, "fragmentationShape"),
    "a switch as text": ({"descheduler": {"enabled": "yes"}}, "enabled"),
    "a duration without a unit": ({"descheduler": {"options": {"pendingWait": "30"}}}, "pendingWait"),
    "an option that is a policy's": ({"descheduler": {"options": {"strategy": "threshold"}}}, "strategy"),
    "a policy without a profile": ({"policies": {"nightly": {"mode": "Auto"}}}, "profiles"),
    "a policy whose name is no name": ({"policies": {"Nightly!": {"profiles": []}}}, "Nightly"),
    "an unknown level": ({"operator": {"options": {"logLevel": "loud"}}}, "logLevel"),
    "a port beyond all ports": ({"operator": {"healthPort": 70000}}, "healthPort"),
    "a webhook without TLS": ({"operator": {"options": {"webhookUrl": "http://x"}}}, "webhookUrl"),
    "a digest that is none": ({"operator": {"digest": "latest"}}, "digest"),
    "an HTTP interface without TLS": ({"descheduler": {"rest": {"address": "0.0.0.0:80"}}}, "address"),
    "no descheduler at all": ({"descheduler": {"replicas": 0}}, "replicas"),
    "a misspelt resource": ({"operator": {"resources": {"request": {}}}}, "request"),
    "a policy that denies and warns": ({"admissionPolicies": {"actions": ["Deny", "Warn"]}}, "actions"),
    "a label that is no text": ({"operator": {"podLabels": {"a": 1}}}, "podLabels"),
}
