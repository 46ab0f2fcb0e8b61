#define _GNU_SOURCE
#include "wire/peer.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static const uint8_t V4_PREFIX[12] = {[10] = 0xFF, [11] = 0xFF};

/* An IPv6 peer; an IPv4-mapped address (::ffff:a.b.c.d) becomes IPv4. */
static rp_host peer_v6(const uint8_t address[16], uint16_t port) {
    rp_host host = {.family = 6, .port = port};

    if (memcmp(address, V4_PREFIX, sizeof V4_PREFIX) == 0) {
        memcpy(host.address, address + sizeof V4_PREFIX, 4);
        host.family = 4;
    } else {
        memcpy(host.address, address, 16);
    }
    return host;
}

rp_host rp_peer_of_socket(int fd) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    rp_host host = {.family = 4};

    if (getpeername(fd, (struct sockaddr *)&address, &size) != 0) return host;
    if (address.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address;
        memcpy(host.address, &v4->sin_addr, 4);
        host.port = ntohs(v4->sin_port);
    } else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address;
        host = peer_v6(v6->sin6_addr.s6_addr, ntohs(v6->sin6_port));
    }
    return host;
}

static int is_in(const uint8_t address[16], const rp_network *network) {
    uint32_t whole = network->bits / 8, rest = network->bits % 8;

    if (memcmp(address, network->address, whole) != 0) return 0;
    return rest == 0 || (address[whole] ^ network->address[whole]) >> (8 - rest) == 0;
}

int rp_peer_is_in(const rp_host *peer, const rp_network *networks, uint32_t network_count) {
    uint8_t address[16];

    memcpy(address, V4_PREFIX, sizeof V4_PREFIX);
    if (peer->family == 4)
        memcpy(address + sizeof V4_PREFIX, peer->address, 4);
    else
        memcpy(address, peer->address, 16);
    for (uint32_t i = 0; i < network_count; i++)
        if (networks[i].bits <= 128 && is_in(address, &networks[i])) return 1;
    return 0;
}

/* The PROXY protocol ("The PROXY protocol", HAProxy, versions 1 and 2).
 *
 *   1:  PROXY TCP4|TCP6 <source> <destination> <source port> <destination port>\r\n    at most 107 bytes
 *       PROXY UNKNOWN ...\r\n
 *   2:   0  12  0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A
 *       12   1  2 << 4 | command: 0 LOCAL, 1 PROXY
 *       13   1  family << 4 | protocol: families 0 none, 1 IPv4, 2 IPv6, 3 unix; protocols 0 none, 1 stream, 2 datagram
 *       14   2  bytes that follow: source, destination, source port, destination port, then type(1) size(2) value ...
 *
 * Parsing stops at the first invalid byte, so a peer with another protocol is detected at once. */

enum { HEAD = 16, SIGNATURE = 12, FIELDS = 4, V4_BYTES = 12, V6_BYTES = 36, UNIX_BYTES = 216 };
enum { LOCAL = 0, PROXY = 1, NONE = 0, V4 = 1, V6 = 2, UNIX = 3, STREAM = 1, DATAGRAM = 2 };

static const uint8_t SIGNATURE_BYTES[SIGNATURE] = {'\r', '\n', '\r', '\n', 0, '\r', '\n', 'Q', 'U', 'I', 'T', '\n'};

/* ---- version 1 ---- */

/* Parse a port without sign, blanks or leading zeros; -1 if it is invalid. */
static int32_t port_of(const char *text) {
    int32_t port = 0;

    if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0')) return -1;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') return -1;
        port = port * 10 + (*text - '0');
        if (port > 65535) return -1;
    }
    return port;
}

static rp_status parse_addresses(int family, char *text, rp_proxy_header *header) {
    char *fields[FIELDS] = {text};
    uint8_t source[16] = {0}, destination[16];
    int count = 1;

    for (char *at = text; *at != '\0'; at++) {
        if (*at != ' ') continue;
        if (count == FIELDS) return RP_INVALID;
        *at = '\0';
        fields[count++] = at + 1;
    }
    if (count != FIELDS || inet_pton(family, fields[0], source) != 1 || inet_pton(family, fields[1], destination) != 1)
        return RP_INVALID;
    int32_t port = port_of(fields[2]);
    if (port < 0 || port_of(fields[3]) < 0) return RP_INVALID;
    header->kind = RP_PROXY_PEER;
    if (family == AF_INET6) {
        header->peer = peer_v6(source, (uint16_t)port);
    } else {
        memcpy(header->peer.address, source, 4);
        header->peer.port = (uint16_t)port;
    }
    return RP_OK;
}

static rp_status cut_line(const uint8_t *data, uint64_t size, rp_proxy_header *header) {
    static const char START[] = "PROXY ";
    uint64_t start = sizeof START - 1, looked = size < RP_PROXY_LINE_MAX ? size : RP_PROXY_LINE_MAX;
    char line[RP_PROXY_LINE_MAX + 1];

    if (memcmp(data, START, looked < start ? looked : start) != 0) return RP_INVALID;
    const uint8_t *end = memchr(data, '\r', looked);
    if (end == NULL) return size < RP_PROXY_LINE_MAX ? RP_INCOMPLETE : RP_TOO_LARGE;
    uint64_t length = (uint64_t)(end - data);
    if (length + 2 > RP_PROXY_LINE_MAX) return RP_TOO_LARGE;
    if (length + 2 > size) return RP_INCOMPLETE;
    if (end[1] != '\n' || length < start || memchr(data, '\0', length) != NULL) return RP_INVALID;
    memcpy(line, data, length);
    line[length] = '\0';
    header->size = (uint32_t)length + 2;
    char *rest = line + start;
    if (strcmp(rest, "UNKNOWN") == 0 || strncmp(rest, "UNKNOWN ", 8) == 0) return RP_OK;
    if (strncmp(rest, "TCP4 ", 5) == 0) return parse_addresses(AF_INET, rest + 5, header);
    if (strncmp(rest, "TCP6 ", 5) == 0) return parse_addresses(AF_INET6, rest + 5, header);
    return RP_INVALID;
}

/* ---- version 2 ---- */

/* Type, size and value, one after the other, to the end. */
static int are_extensions(const uint8_t *data, uint32_t size) {
    while (size > 0) {
        if (size < 3) return 0;
        uint32_t whole = 3 + ((uint32_t)data[1] << 8 | data[2]);
        if (whole > size) return 0;
        data += whole;
        size -= whole;
    }
    return 1;
}

static rp_status take_addresses(const uint8_t *data, uint32_t size, int family, int protocol, rp_proxy_header *header) {
    static const uint32_t address_bytes[] = {[NONE] = 0, [V4] = V4_BYTES, [V6] = V6_BYTES, [UNIX] = UNIX_BYTES};
    uint32_t taken = address_bytes[family];

    if (size < taken) return RP_INVALID;
    if (family != NONE && !are_extensions(data + taken, size - taken)) return RP_INVALID;
    if (protocol != STREAM || family == NONE || family == UNIX) return RP_OK; /* unknown */
    header->kind = RP_PROXY_PEER;
    if (family == V6) {
        header->peer = peer_v6(data, (uint16_t)(data[32] << 8 | data[33]));
    } else {
        memcpy(header->peer.address, data, 4);
        header->peer.port = (uint16_t)(data[8] << 8 | data[9]);
    }
    return RP_OK;
}

static rp_status cut_binary(const uint8_t *data, uint64_t size, rp_proxy_header *header) {
    if (memcmp(data, SIGNATURE_BYTES, size < SIGNATURE ? size : SIGNATURE) != 0) return RP_INVALID;
    if (size > 12 && (data[12] >> 4 != 2 || (data[12] & 15) > PROXY)) return RP_INVALID;
    if (size > 13 && (data[13] >> 4 > UNIX || (data[13] & 15) > DATAGRAM)) return RP_INVALID;
    if (size < HEAD) return RP_INCOMPLETE;
    uint32_t following = (uint32_t)data[14] << 8 | data[15];
    header->size = HEAD + following;
    if (header->size > RP_PROXY_HEADER_MAX) return RP_TOO_LARGE;
    if (size < header->size) return RP_INCOMPLETE;
    if ((data[12] & 15) == LOCAL) {
        header->kind = RP_PROXY_LOCAL;
        return RP_OK;
    }
    return take_addresses(data + HEAD, following, data[13] >> 4, data[13] & 15, header);
}

rp_status rp_proxy_header_cut(const uint8_t *data, uint64_t size, rp_proxy_header *header) {
    *header = (rp_proxy_header){.kind = RP_PROXY_UNKNOWN, .peer = {.family = 4}};
    if (size == 0) return RP_INCOMPLETE;
    return data[0] == 'P' ? cut_line(data, size, header) : cut_binary(data, size, header);
}

uint32_t rp_proxy_header_missing(const uint8_t *data, uint32_t size) {
    static const uint32_t LINE_MIN = sizeof "PROXY UNKNOWN\r\n" - 1;

    if (size == 0) return LINE_MIN; /* shorter than any header of version 2 */
    if (data[0] == 'P') return size < LINE_MIN ? LINE_MIN - size : 1;
    return size < HEAD ? HEAD - size : HEAD + ((uint32_t)data[14] << 8 | data[15]) - size;
}
