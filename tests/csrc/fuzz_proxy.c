/* The header with which a proxy begins: any bytes, and any beginning of them. */
#include "wire/peer.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rp_proxy_header header, again;
    rp_status status = rp_proxy_header_cut(data, size, &header);
    CHECK(status == RP_OK || status == RP_INCOMPLETE || status == RP_INVALID || status == RP_TOO_LARGE);
    if (status == RP_INCOMPLETE) CHECK(size < RP_PROXY_HEADER_MAX);
    if (status != RP_OK) return 0;
    CHECK(header.size <= size && header.size <= RP_PROXY_HEADER_MAX);
    CHECK(header.kind >= RP_PROXY_LOCAL && header.kind <= RP_PROXY_UNKNOWN);
    CHECK(header.peer.family == 4 || (header.peer.family == 6 && header.kind == RP_PROXY_PEER));
    for (uint32_t part = 0; part < header.size; part++) { /* byte by byte it is the same */
        uint8_t *exact = exact_copy(data, part);
        CHECK(rp_proxy_header_cut(exact, part, &again) == RP_INCOMPLETE);
        free(exact);
    }
    return 0;
}
