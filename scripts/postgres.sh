#!/bin/sh
# Finds PostgreSQL; installs it with apt when root. Without it the tests that need it say so and are skipped.
if ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null 2>&1; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing PostgreSQL (postgresql)..."
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null && exit 0
fi
echo "No PostgreSQL: the tests of upserts are skipped; to run them, install it (Debian and Ubuntu: postgresql)." >&2
