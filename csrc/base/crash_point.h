#ifndef ROCKETPY_CRASH_POINT_H
#define ROCKETPY_CRASH_POINT_H
/* Named instants between two changes of the store's files. Nothing in the product; in the build that
 * tests/support/crash_core.py makes, a call that lets a test see what the disk would hold if everything ended here. */
#ifdef RP_WITH_CRASH_POINTS
void rp_crash_point(const char *name);
#define RP_CRASH_POINT(name) rp_crash_point(name)
#else
#define RP_CRASH_POINT(name) ((void)0)
#endif
#endif
