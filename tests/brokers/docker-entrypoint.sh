#!/bin/sh
# The entry point of the images made from Debian: what the official image's does, as far as tests need it.
set -e
if [ "$1" = rabbitmq-server ]; then
    export HOME=/var/lib/rabbitmq RABBITMQ_LOGS=-
    if [ "$(id -u)" = 0 ]; then
        chown -R rabbitmq:rabbitmq /var/lib/rabbitmq /etc/rabbitmq
        exec setpriv --reuid=rabbitmq --regid=rabbitmq --init-groups "$0" "$@"
    fi
    shift
    # The server's own script: the one on PATH changes user and sends the log to a file.
    # With this variable it becomes the Erlang machine itself, so that the engine's signals reach it.
    export RUNNING_UNDER_SYSTEMD=true
    exec /usr/lib/rabbitmq/bin/rabbitmq-server "$@"
fi
exec "$@"
