#!/bin/sh
# Prints where this machine's apt has Debian's main archive from. Status 1: it has none.
apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 2>/dev/null | sed -n 's,^Debian Debian ,,p' | sort -u |
    head -n 1 | grep .
