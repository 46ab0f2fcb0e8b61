#!/bin/sh
# Run a command that installs packages: with_progress.sh LOG COMMAND ...
# Its output goes to LOG; each new step of it is shown in a line, with the seconds so far. LOG is shown if it fails.
log=$1
shift
: > "$log"
"$@" > "$log" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
seconds=0
shown=0
while kill -0 "$pid" 2>/dev/null; do
    steps=$(grep -cE '^ *(Collecting|Downloading|Using cached|Building|Installing)' "$log")
    if [ "$steps" -gt "$shown" ] || [ $((seconds % 10)) -eq 9 ]; then
        line=$(grep -E '^ *(Collecting|Downloading|Using cached|Building|Installing)' "$log" | tail -n 1 | cut -c1-90)
        printf '  %3d s  %s\n' "$seconds" "$line"
        shown=$steps
    fi
    sleep 1
    seconds=$((seconds + 1))
done
wait "$pid" || { cat "$log"; exit 1; }
