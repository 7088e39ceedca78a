# A container engine for the version matrix: the one that answers, else a private dockerd. Sourced.
#
# use_engine           leaves DOCKER_HOST pointing at an engine that answers, or returns 1
# leave_engine         ends the private dockerd when no other run uses it; an engine of the user's is never touched
# shellcheck shell=bash

cache="${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/redrive"
engine="$cache/engine"

# within SECONDS COMMAND...: `timeout`, where there is one; macOS has none.
within() {
    if command -v timeout >/dev/null; then
        timeout --kill-after=30 "$@"
    else
        shift
        "$@"
    fi
}

engine_answers() {
    within 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1
}

use_engine() {
    if command -v docker >/dev/null && engine_answers; then
        return 0
    fi
    if ! can_install_packages; then
        echo "engine: no container engine answers, and only root on Debian or Ubuntu can have a private one made." >&2
        echo "Start Docker or Podman, or set DOCKER_HOST to an engine that answers." >&2
        return 1
    fi
    if ! command -v dockerd >/dev/null; then
        install_packages docker.io iptables || return 1
    fi
    # From Debian 13 on the client is a package of its own.
    if ! command -v docker >/dev/null; then
        install_packages docker-cli || return 1
    fi
    mkdir -p "$engine"
    export DOCKER_HOST="unix://$engine/docker.sock"
    # Runs share one private engine. Each holds this lock in shared mode; the last one to leave gets it alone.
    exec 8>"$engine/users"
    flock --shared --timeout 60 8 || return 1
    exec 7>"$engine/starting"
    flock --timeout 60 7 || return 1
    local driver
    if ! engine_answers; then
        for driver in overlay2 vfs; do # overlay2 can't stand on another overlay, vfs can stand anywhere
            start_private_engine "$driver" && break
        done
    fi
    flock --unlock 7
    engine_answers || { tail -n 20 "$engine/log" >&2; return 1; }
}

# From 1 to 250, the same for the same folder.
bridge_number() {
    echo $(($(printf '%s' "$engine" | cksum | cut -d ' ' -f 1) % 250 + 1))
}

start_private_engine() {
    echo "engine: starting a private dockerd ($1)"
    rm -f "$engine/docker.sock" "$engine/pid"
    # A bridge of its own where that can be: engines that share docker0 give their containers the same addresses.
    local bridge=() number
    number=$(bridge_number)
    if command -v ip >/dev/null; then
        ip link show "redrive$number" >/dev/null 2>&1 ||
            { ip link add "redrive$number" type bridge && ip address add "10.213.$number.1/24" dev "redrive$number"; } 2>/dev/null
        ip link set "redrive$number" up 2>/dev/null && bridge=(--bridge "redrive$number")
    fi
    # No network rules, no forwarding, published ports on the loopback only: the machine's network stays as it is.
    setsid dockerd --host "$DOCKER_HOST" --data-root "$engine/data" --exec-root "$engine/exec" --pidfile "$engine/pid" \
        --storage-driver="$1" --iptables=false --ip6tables=false --ip-masq=false --ip-forward=false --ip=127.0.0.1 "${bridge[@]}" \
        </dev/null >"$engine/log" 2>&1 7>&- 8>&- &
    local pid=$! deadline=$((SECONDS + 30))
    until engine_answers; do
        if ! kill -0 "$pid" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
            kill "$pid" 2>/dev/null
            return 1
        fi
        sleep 0.2
    done
}

is_private_engine() {
    [ "${DOCKER_HOST:-}" = "unix://$engine/docker.sock" ]
}

leave_engine() {
    is_private_engine || return 0
    flock --unlock 8 2>/dev/null || return 0
    flock --exclusive --nonblock 8 || return 0 # another run uses it
    [ -s "$engine/pid" ] || return 0
    local pid
    pid=$(cat "$engine/pid")
    docker ps --all --quiet | xargs --no-run-if-empty docker rm --force --volumes >/dev/null 2>&1
    kill "$pid" 2>/dev/null
    local deadline=$((SECONDS + 30))
    while kill -0 "$pid" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.2; done
    kill -9 "$pid" 2>/dev/null
    ip link delete "redrive$(bridge_number)" 2>/dev/null
    flock --unlock 8
    return 0
}
