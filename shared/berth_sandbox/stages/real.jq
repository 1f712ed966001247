# What a kubelet does next with a pod at the real pace, and when: a name of real.yaml and a delay.
#
# Every delay ends at a time that follows from the pod itself, so that a change of the pod by others does not begin it
# anew. Timestamps have whole seconds: what takes N seconds has N seconds between its two timestamps.

def note($name): .metadata.annotations["sandbox.berth.volcano.sh/" + $name];

# An annotation that counts only on the nodes that the pod names, where it names any.
def start_note($name; $elsewhere):
  note("only-on") as $nodes
  | if $nodes == null or (.spec.nodeName | startswith($nodes)) then note($name) else $elsewhere end;

def amount($otherwise): if . == null then $otherwise elif . == "never" or . == "always" then infinite else tonumber end;

def amount($name; $otherwise): note($name) | amount($otherwise);

# A number of seconds between two bounds, drawn by four hexadecimal digits of the uid: each look at a pod draws the same.
def drawn($digits; $least; $most):
  reduce ($digits | explode | .[]) as $digit (0; . * 16 + if $digit > 96 then $digit - 87 else $digit - 48 end)
  | $least + . / 65535 * ($most - $least);

def is($type): any(.status.conditions[]?; .type == $type and .status == "True");

def since($type): [.status.conditions[]? | select(.type == $type) | .lastTransitionTime | fromdate] | max;

def restarts: [.status.containerStatuses[]?.restartCount] | max;

# When the running containers were started: null while they wait.
def started: [.status.containerStatuses[]?.state.running.startedAt | values | fromdate] | max;

def crashed: [.status.containerStatuses[]?.lastState.terminated.finishedAt | values | fromdate] | max;

def waits_for: [.status.containerStatuses[]?.state.waiting.reason | values] | .[0];

def start_error: start_note("start-error"; null);

# Of Berth's own pods, whose small image is on every node: they are ready when they run.
def is_placeholder: .spec.containers | all(.image == placeholder_image);

def creating_seconds:
  drawn(.metadata.uid[-4:]; 3; if is_placeholder then 4 else 20 end) as $drawn
  | start_note("starts-after-seconds"; "0") | amount($drawn);

def readying_seconds:
  if is_placeholder then 0 else drawn(.metadata.uid[-8:-4]; 0; 60) end as $drawn
  | start_note("ready-after-seconds"; "0") | amount($drawn);

def crashes: start_note("crashes"; "0") | amount(0);

def is_refusal: . == "OutOfcpu" or . == "OutOfmemory" or . == "OutOfpods" or . == "NodeAffinity";

def accepting:
  {stage: (if start_error | is_refusal then "pod-refused" else "pod-accepted" end), at: (now + 0.1)};

def starting:
  start_error as $error
  | waits_for as $reason
  | (.status.startTime | fromdate) as $accepted
  | creating_seconds as $creating
  | if $error == null then
      if .spec.initContainers != null and $reason == "PodInitializing" and (is("PodReadyToStartContainers") | not)
      then {stage: "pod-initializing", at: ($accepted + $creating / 2)}
      else {stage: "pod-running", at: ($accepted + $creating)}
      end
    elif $error == "ErrImagePull" and $reason == $error then {stage: "pod-backs-off", at: (now + 1)}
    elif $error == "ErrImagePull" and $reason == "ImagePullBackOff"
    then {stage: "pod-start-error", at: (now + ([now - $accepted + 10, 300] | min))}
    elif $reason == $error then empty
    else {stage: "pod-start-error", at: ($accepted + $creating)}
    end;

def running:
  started as $started
  | restarts as $restarts
  | (crashes > $restarts) as $crashes
  | if $started == null and $crashes
    then {stage: "pod-restarted", at: (crashed + ([pow(2; $restarts - 1) * 10, 300] | min))}
    elif $started == null then {stage: "pod-restarted", at: now}
    elif $crashes and .spec.restartPolicy == "Never"
    then {stage: "pod-failed", at: ($started + amount("crashes-after-seconds"; 1))}
    elif $crashes
    then {stage: (if $restarts == 0 then "pod-restarted" else "pod-crashed" end),
          at: ($started + amount("crashes-after-seconds"; 1))}
    elif is("Ready") then {stage: "pod-unready", at: (since("Ready") + (start_note("ready-for-seconds"; null) | amount(infinite)))}
    elif since("Ready") > $started
    then {stage: "pod-ready", at: (since("Ready") + amount("unready-for-seconds"; infinite))}
    else {stage: "pod-ready", at: ($started + readying_seconds)}
    end;

def completing:
  started as $started
  | select(.spec.restartPolicy != "Always" and $started != null)
  | {stage: "pod-completed", at: ($started + amount("runs-for-seconds"; infinite))};

def expiring:
  select(.spec.activeDeadlineSeconds != null)
  | {stage: "pod-past-deadline", at: ((.status.startTime | fromdate) + .spec.activeDeadlineSeconds)};

def terminating:
  .metadata.deletionGracePeriodSeconds as $grace
  | ((.metadata.deletionTimestamp | fromdate) - $grace) as $asked
  | amount("ends-after-seconds"; $grace) as $ending
  | if .status.phase == "Succeeded" or .status.phase == "Failed" then {stage: "pod-removed", at: (now + 0.1)}
    elif .status.phase != "Running" then {stage: "pod-killed", at: (now + 0.1)}
    elif $ending == infinite then empty
    elif $ending < $grace then {stage: "pod-ended", at: ($asked + $ending)}
    else {stage: "pod-killed", at: ($asked + $grace)}
    end;

def possible:
  if .metadata.deletionTimestamp != null then terminating
  elif .status.phase == "Succeeded" or .status.phase == "Failed" then empty
  elif .status.startTime == null then accepting
  elif .status.phase == "Running" then running, completing, expiring
  else starting, expiring
  end;

def next:
  [possible | select(.at != infinite)] | min_by(.at) | values
  | .delay = "\([(.at - now) * 1000, 0] | max | ceil)ms";
