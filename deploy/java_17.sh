#!/bin/sh
# Is there a Java that Spark can use? Spark 4 needs 17 or newer, in JAVA_HOME or on the PATH.
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\)[".].*/\1/p')
if [ -z "$version" ]; then
    echo "Spark needs Java 17 or newer, and '$java' cannot be run: install it (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME" >&2
    exit 1
fi
if [ "$version" -lt 17 ]; then
    echo "Spark needs Java 17 or newer, and '$java' is Java $version: install a newer one, or point JAVA_HOME to it" >&2
    exit 1
fi
