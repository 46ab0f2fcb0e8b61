#ifndef ROCKETPY_TESTS_HANDOFF_H
#define ROCKETPY_TESTS_HANDOFF_H
/* What the acceptor does, for drivers of the selector. */
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "check.h"

/* Pass the connection `fd`, which came to the listening socket number `listener`, through `handoff`, and close it here.
 */
static inline void hand_over(int handoff, int fd, uint8_t listener) {
    struct iovec vector = {&listener, 1};
    union {
        struct cmsghdr align;
        uint8_t bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(part), &fd, sizeof(int));
    CHECK(sendmsg(handoff, &message, 0) == 1);
    close(fd);
}
#endif
