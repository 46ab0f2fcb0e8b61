#!/bin/sh
# Name, in one line, the first thing this machine lacks to build rocketpy, and the Debian package that brings it.
# Usage: prerequisites.sh PYTHON
python=${1:-python3}
lacks() { echo "rocketpy: $1 is missing; on Debian: apt-get install $2" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 || lacks "Python 3.11 or newer ($python)" python3
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    lacks "Python 3.11 or newer ($python is $("$python" -V 2>&1 | cut -d" " -f2); set PYTHON=...)" python3.11
"$python" -c 'import ensurepip, venv' 2>/dev/null || lacks "the venv module of $python" python3-venv
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
    lacks "Python.h, the headers of $python" python3-dev
command -v "${CC:-cc}" >/dev/null 2>&1 || lacks "a C compiler (${CC:-cc})" gcc
echo 'int main(void) { return 0; }' | "${CC:-cc}" -x c -o /dev/null - 2>/dev/null || lacks "the C library's headers" libc6-dev
command -v git >/dev/null 2>&1 || lacks git git
