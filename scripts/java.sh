#!/bin/sh
# Finds Java 17 or newer; installs it with apt when root; otherwise says in one sentence what to install.
version() { "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1; }
new_enough() { command -v "$1" >/dev/null 2>&1 && [ "$(version "$1")" -ge 17 ] 2>/dev/null; }

if [ -n "$JAVA_HOME" ] && new_enough "$JAVA_HOME/bin/java"; then exit 0; fi
if [ -z "$JAVA_HOME" ] && new_enough java; then exit 0; fi
if [ -n "$JAVA_HOME" ]; then
    echo "JAVA_HOME is $JAVA_HOME, which has no Java 17 or newer: unset it or point it at one." >&2
    exit 1
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing Java 17 (openjdk-17-jre-headless)..."
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >/dev/null && exit 0
fi
echo "Watersmeet needs Java 17 or newer for Spark: install a JRE (Debian and Ubuntu: openjdk-17-jre-headless) and run this again." >&2
exit 1
