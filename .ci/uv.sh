# How uv is run on this machine: sourced by the scripts and targets that call it, with a plain sh, too.
# shellcheck shell=sh

# Copies: a cache on another file system can't be linked to, and says so for each package.
export UV_LINK_MODE="${UV_LINK_MODE:-copy}"
# The system's certificates, where it has some: a company's own are among them.
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"
