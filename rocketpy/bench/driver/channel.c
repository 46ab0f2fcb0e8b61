/* See channel.h. */
#define _GNU_SOURCE
#include "channel.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef BENCH_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>

int tls_is_built(void) { return 1; }

tls_client *tls_client_open(void) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return (tls_client *)context;
}

void tls_client_close(tls_client *client) { SSL_CTX_free((SSL_CTX *)client); }

static int shake_hands(channel *c, tls_client *client) {
    SSL *tls = SSL_new((SSL_CTX *)client);
    c->tls = tls;
    if (tls != NULL && SSL_set_fd(tls, c->fd) == 1 && SSL_connect(tls) == 1) return 0;
    errno = EPROTO;
    return -1;
}

/* The result of a read or write: bytes, 0 at the end, or -1 with errno. */
static ssize_t outcome(channel *c, int result) {
    if (result > 0) return result;
    int error = SSL_get_error(c->tls, result);
    ERR_clear_error();
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

static int at_most(size_t size) { return size > 1 << 30 ? 1 << 30 : (int)size; }

ssize_t channel_receive(channel *c, void *data, size_t size) {
    if (c->tls == NULL) return recv(c->fd, data, size, MSG_DONTWAIT);
    return outcome(c, SSL_read(c->tls, data, at_most(size)));
}

ssize_t channel_send(channel *c, const void *data, size_t size) {
    if (c->tls == NULL) return send(c->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    return outcome(c, SSL_write(c->tls, data, at_most(size)));
}

static void end_tls(channel *c) {
    SSL_free(c->tls);
    c->tls = NULL;
}

#else

int tls_is_built(void) { return 0; }

tls_client *tls_client_open(void) {
    errno = ENOTSUP;
    return NULL;
}

void tls_client_close(tls_client *client) { (void)client; }

static int shake_hands(channel *c, tls_client *client) {
    (void)c, (void)client;
    errno = ENOTSUP;
    return -1;
}

ssize_t channel_receive(channel *c, void *data, size_t size) { return recv(c->fd, data, size, MSG_DONTWAIT); }

ssize_t channel_send(channel *c, const void *data, size_t size) {
    return send(c->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void end_tls(channel *c) { (void)c; }

#endif

int channel_open(channel *c, tls_client *client) {
    if (client == NULL) return 0;
    if (shake_hands(c, client) != 0) return -1;
    return fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
}

void channel_close(channel *c) {
    end_tls(c);
    close(c->fd);
    c->fd = -1;
}
