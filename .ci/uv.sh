# How uv is run on this machine, and which of the pinned dependencies are installed for what: sourced by the scripts and targets
# that call it, with a plain sh, too.
# shellcheck shell=sh

# Copies: a cache on another file system can't be linked to, and says so for each package.
export UV_LINK_MODE="${UV_LINK_MODE:-copy}"
# The system's certificates, where it has some: a company's own are among them.
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"

uv_cache() {
    echo "${UV_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/uv}"
}

# what_is SET: prints what a set of dependencies is for, and how much it takes.
what_is() {
    case $1 in
        tools) echo "uv, which installs the others: about 60 MB" ;;
        demo) echo "the command line and a private RabbitMQ's client: about 180 MB" ;;
        spark) echo "the command line and Spark: about 1 GB, and up to 3 GB in uv's cache" ;;
        test) echo "what the tests need, without Spark: about 640 MB" ;;
        mutants) echo "what the tests need, and mutmut: about 700 MB" ;;
        dev) echo "all that is developed with, Spark included: about 1.3 GB, and up to 3 GB in uv's cache" ;;
        *)
            echo "There is no set of dependencies named $1: tools, demo, spark, test, mutants or dev." >&2
            return 2
            ;;
    esac
}

# install_pinned SET PINS [OPTION...]: installs a set of pyproject.toml's requirements into VIRTUAL_ENV, as pinned by the file
# PINS, and this package, which the pinned uv_build builds.
install_pinned() {
    uv_set=$1 uv_pins=$2
    shift 2
    # At a terminal uv shows its progress; a log is spared its lists.
    [ -t 2 ] || set -- --quiet "$@"
    case $uv_set in
        demo) set -- --extra cli --extra testing --group build "$@" ;;
        spark) set -- --extra spark --extra testing --group build "$@" ;;
        test) set -- --extra async --extra cli --extra depends --extra metrics --extra msgpack --extra reload --extra settings --extra testing --extra web --extra zstd --group test "$@" ;;
        mutants) set -- --extra async --extra cli --extra depends --extra metrics --extra msgpack --extra reload --extra settings --extra testing --extra web --extra zstd --group mutants "$@" ;;
        dev) set -- --all-extras --group dev --group s3 "$@" ;;
        *) what_is "$uv_set" || return ;;
    esac
    .venv/bin/uv pip install --require-hashes --constraints "$uv_pins" -r pyproject.toml "$@" &&
        .venv/bin/uv pip install --quiet --no-deps --no-build-isolation -e .
}
