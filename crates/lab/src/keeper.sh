# Ends the servers below a directory when the process that started them is gone, however it went: that process holds the
# other end of our standard input. A line "release" lets them live.
# $1: the directory; $2: "remove" if it goes too.
trap '' HUP INT TERM
if read -r word && [ "$word" = release ]; then exit 0; fi
# A server is known by an argument, also one whose id was never written down. The patterns come by a pipe, or grep would
# find itself. Its exit code says nothing: processes come and go while it reads.
find_servers() {
    printf '%s\n' "-Dmobimir.lab.node=$1/" "--dbpath=$1/" | grep -l -a -s -F -f - /proc/[0-9]*/cmdline
}
while processes=$(find_servers "$1"); [ -n "$processes" ]; do
    for process in $processes; do
        id=${process#/proc/}
        kill -KILL "${id%/cmdline}" 2>/dev/null
    done
    sleep 0.05
done
# A thread that was in the middle of something may still make a file.
tries=0
while [ "$2" = remove ] && ! rm -rf "$1" 2>/dev/null && [ "$tries" -lt 50 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
