#ifndef ROCKETPY_CRASH_POINT_H
#define ROCKETPY_CRASH_POINT_H
/* Named instants between two changes of the store's files. They are empty in the product. In the build of
 * tests/support/crash they call a test, which examines what the disk would hold after a crash at this instant.
 * Short: the product has nothing of it. */
#ifdef RP_WITH_CRASH_POINTS
void rp_crash_point(const char *name);
#define RP_CRASH_POINT(name) rp_crash_point(name)
#else
#define RP_CRASH_POINT(name) ((void)0)
#endif
#endif
