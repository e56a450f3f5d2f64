# Ends everything in the network namespaces of the lab, and removes them with their bridge, when the process that
# made them is gone, however it went: that process holds the other end of our standard input.
# $1: what the names of the namespaces and of their links begin with; $2: the bridge.
trap '' HUP INT TERM
read -r _
for namespace in $(ip netns list | sed 's/ .*//' | grep "^$1"); do
    while processes=$(ip netns pids "$namespace" 2>/dev/null) && [ -n "$processes" ]; do
        # shellcheck disable=SC2086 # a list of ids
        kill -KILL $processes 2>/dev/null
        sleep 0.05
    done
    ip link del "$namespace" 2>/dev/null
    ip netns del "$namespace"
done
if ip link show "$2" >/dev/null 2>&1; then ip link del "$2"; fi
