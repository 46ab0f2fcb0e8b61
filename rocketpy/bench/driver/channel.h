#ifndef BENCH_CHANNEL_H
#define BENCH_CHANNEL_H
/* The bytes of one connection, plain or by TLS (OpenSSL, where its headers are there when the driver is built).
 *
 * Reads and writes never wait: -1 with EAGAIN says that the socket is not ready. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct tls_client tls_client; /* one for all connections of a load */
typedef struct channel {
    int fd;
    void *tls; /* SSL *; NULL: plain */
} channel;

/* 1: the driver was built with OpenSSL. */
int tls_is_built(void);
/* Trust any certificate: the load measures, it does not protect. NULL with errno (ENOTSUP: built without OpenSSL). */
tls_client *tls_client_open(void);
void tls_client_close(tls_client *client);

/* A handshake on `fd`, a connected, blocking socket, which is non-blocking afterwards. `client` NULL: nothing to do, it
 * is plain. 0; -1 with errno, to be closed. */
int channel_open(channel *c, tls_client *client);
void channel_close(channel *c);
ssize_t channel_receive(channel *c, void *data, size_t size);
ssize_t channel_send(channel *c, const void *data, size_t size);
#endif
