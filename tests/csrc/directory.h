#ifndef ROCKETPY_TESTS_DIRECTORY_H
#define ROCKETPY_TESTS_DIRECTORY_H
/* Temporary directories of the C drivers. */
#include <stdio.h>
#include <stdlib.h>
#include "check.h"

enum { DIRECTORY_SIZE = 64, PATH_SIZE = 128 };

/* Make a new directory under /tmp, named after its driver; `out` has DIRECTORY_SIZE bytes. */
static inline void make_directory(char *out, const char *driver) {
    CHECK(snprintf(out, DIRECTORY_SIZE, "/tmp/rocketpy-%s-XXXXXX", driver) < DIRECTORY_SIZE);
    CHECK(mkdtemp(out));
}

/* Remove it with everything in it. */
static inline void remove_directory(const char *directory) {
    char command[DIRECTORY_SIZE + 8];
    CHECK(snprintf(command, sizeof command, "rm -rf %s", directory) < (int)sizeof command);
    CHECK(system(command) == 0);
}

/* The path of `name` in it; `out` has PATH_SIZE bytes. Returns `out`. */
static inline char *path_in(char *out, const char *directory, const char *name) {
    CHECK(snprintf(out, PATH_SIZE, "%s/%s", directory, name) < PATH_SIZE);
    return out;
}
#endif
