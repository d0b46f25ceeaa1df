#!/bin/sh
# Finds Chromium and its driver for the tests of the page; installs them with apt when root; otherwise tests are skipped.
if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing Chromium (chromium, chromium-driver)..."
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null && exit 0
fi
echo "There is no Chromium with its driver (Debian: chromium, chromium-driver): the tests of the page in a browser are skipped." >&2
