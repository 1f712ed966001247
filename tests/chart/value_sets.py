"""The table of values with which the chart is rendered, each named by what is special about it."""

from typing import Any, Final

import yaml

from conventions.generate_copies import CHART

OPENSHIFT: Final = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
"""What leaves the ids of a pod's processes to the cluster."""

OF_BOTH: Final[dict[str, Any]] = {
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example"}],
    "extraEnv": [{"name": "NO_PROXY", "value": "10.0.0.0/8"}],
    "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
    "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/ssl/certs", "readOnly": True}],
    "podSecurityContext": OPENSHIFT,
    "securityContext": {"runAsNonRoot": True, "privileged": False},
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"pool": "system"},
    "podLabels": {"team": "a"},
    "podAnnotations": {"note": "b"},
}
"""Values that the pods of both programs have."""

EVERYTHING: Final[dict[str, Any]] = {
    "imagePullSecrets": [{"name": "c"}],
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
            "webhookTimeoutSeconds": 9,
            "retention": 2592000,
            "unschedulableSeconds": 0,
            "nodeLostSeconds": 60,
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
        "webhook": {"tlsSecret": "berth-webhook-issued", "issuerRef": {"kind": "ClusterIssuer", "name": "internal"}},
        "evictions": {"enabled": True, "deadline": 60},
        "volcanoExtender": {"enabled": True, "port": 19444, "enqueueAfter": "10m"},
        "healthPort": 18080,
        **OF_BOTH,
        "extraArgs": ["--identity=given"],
        "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
        "affinity": {"podAntiAffinity": {}},
        "tolerations": [{"key": "system", "operator": "Exists"}],
    },
    "descheduler": {
        "replicas": 3,
        "replacementTrial": {"enabled": False},
        "options": {
            "timeLimit": "none",
            "noExact": True,
            "controlPlaneNodes": True,
            "seed": -1,
            "reserveTimeout": "61s",
            "evictTimeout": "121s",
            "landTimeout": "122s",
            "endTimeout": "124s",
            "readyTimeout": "123s",
            "pendingWait": "2m",
            "leaseSeconds": 30,
            "planRetention": "none",
            "fragmentationInterval": "none",
            "fragmentationShape": ["cpu=4,memory=8Gi", "cpu=1"],
            "logLevel": "warning",
        },
        "rest": {
            "tlsSecret": "berth-rest-tls",
            "issuerRef": {"group": "cert-manager.io", "kind": "Issuer", "name": "internal"},
            "port": 18443,
            "audiences": ["berth", "people"],
            "prometheusUrl": "https://grafana.example/d/berth",
            "ui": True,
        },
        "healthPort": 18081,
        "terminationGraceSeconds": 600,
        **OF_BOTH,
        "extraArgs": ["--policies"],
        "resources": {"limits": {"memory": "2Gi"}},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
    },
    "nodePrices": {"m5.large": 0.096, "m5.large/spot": "0.035", "Standard_D4s_v3/on-demand": 1, "small": 0.000001},
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
    "roles": {"aggregate": False},
    "admissionPolicies": {
        "actions": ["Deny", "Audit"],
        "images": ["mirror.example/pause:1"],
        "nodeAnnotations": ["team.example/remove"],
        "templateFields": ["newField"],
        "reservationsWithoutOwners": True,
    },
    "networkPolicy": {
        "apiServerPorts": [7443],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}],
        "restFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "volcanoFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "volcano-system"}}}],
    },
    "traces": {
        "endpoint": "http://collector.observability:4318",
        "env": {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": 0.25},
    },
    "monitoring": {
        "serviceMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prometheus"}},
        "rules": {
            "enabled": True,
            "longestCycleAgeSeconds": 2592000,
            "runbookPage": "https://docs.example/alerts",
            "labels": {"release": "prometheus"},
        },
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
    "no roles for people": {"roles": {"enabled": False}},
    "no admission policies": {"admissionPolicies": {"enabled": False}},
    "empty maps": {
        "operator": {"resources": {}, "options": {"limit": "", "image": "", "guardedPriorityClasses": ""}},
        "descheduler": {"resources": {}},
        "monitoring": {"rules": {"enabled": True}, "dashboard": {"enabled": True, "labels": {}}},
    },
    "another name": {"nameOverride": "mooring", "fullnameOverride": "acme", "monitoring": EVERYTHING["monitoring"]},
    "a part of another chart": {"global": {"anything": 1}},
    **{
        f"the example {path.stem}": yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted((CHART / "examples").glob("*.yaml"))
    },
}

REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "an unknown value": ({"operators": {}}, "operators"),
    "an unknown value of a service": ({"operator": {"replica": 2}}, "replica"),
    "an option that the program has not": ({"descheduler": {"options": {"once": True}}}, "once"),
    "an option of the other program": ({"operator": {"options": {"maxMoves": 1}}}, "maxMoves"),
    "no operator at all": ({"operator": {"replicas": 0}}, "replicas"),
    "an address of traces without a scheme": ({"traces": {"endpoint": "collector:4318"}}, "endpoint"),
    "a variable that is not OpenTelemetry's": ({"traces": {"env": {"HTTP_PROXY": "http://a"}}}, "HTTP_PROXY"),
    "a number as text": ({"operator": {"replicas": "2"}}, "replicas"),
    "a text as number": ({"image": {"tag": 1}}, "tag"),
    "a list as text": ({"descheduler": {"options": {"fragmentationShape": "cpu=1"}}}, "fragmentationShape"),
    "a switch as text": ({"descheduler": {"enabled": "yes"}}, "enabled"),
    "a duration without a unit": ({"descheduler": {"options": {"pendingWait": "30"}}}, "pendingWait"),
    "an option that is a policy's": ({"descheduler": {"options": {"strategy": "threshold"}}}, "strategy"),
    "a policy without a profile": ({"policies": {"nightly": {"mode": "Auto"}}}, "profiles"),
    "a price that is no amount": ({"nodePrices": {"m5.large": "0,096"}}, "m5.large"),
    "a price below nothing": ({"nodePrices": {"m5.large": -1}}, "m5.large"),
    "a node that is bought in no known way": ({"nodePrices": {"m5.large/cheaply": 1}}, "m5.large/cheaply"),
    "a policy whose name is no name": ({"policies": {"Nightly!": {"profiles": []}}}, "Nightly"),
    "an unknown level": ({"operator": {"options": {"logLevel": "loud"}}}, "logLevel"),
    "a port beyond all ports": ({"operator": {"healthPort": 70000}}, "healthPort"),
    "a webhook without TLS": ({"operator": {"options": {"webhookUrl": "http://x"}}}, "webhookUrl"),
    "a digest that is none": ({"operator": {"digest": "latest"}}, "digest"),
    "an HTTP interface without TLS": ({"descheduler": {"rest": {"address": "0.0.0.0:80"}}}, "address"),
    "no descheduler at all": ({"descheduler": {"replicas": 0}}, "replicas"),
    "a misspelt resource": ({"operator": {"resources": {"request": {}}}}, "request"),
    "a policy that denies and warns": ({"admissionPolicies": {"actions": ["Deny", "Warn"]}}, "actions"),
    "an issuer with a field too many": ({"descheduler": {"rest": {"issuerRef": {"names": "a"}}}}, "names"),
    "an issuer without a name": (
        {"operator": {"webhook": {"tlsSecret": "a", "issuerRef": {"kind": "Issuer"}}}},
        "name",
    ),
    "an issuer without a Secret": ({"operator": {"webhook": {"issuerRef": {"name": "a"}}}}, "tlsSecret"),
    "a name that is none": ({"fullnameOverride": "Berth!"}, "fullnameOverride"),
    "a name that leaves no room for a suffix": ({"nameOverride": "b" * 41}, "nameOverride"),
    "a pull secret that is only a name": ({"imagePullSecrets": ["a"]}, "imagePullSecrets"),
    "a label that is no text": ({"operator": {"podLabels": {"a": 1}}}, "podLabels"),
}
