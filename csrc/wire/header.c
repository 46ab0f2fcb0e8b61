/* The choice of the reader by the type byte. */
#include "wire/header.h"

rp_status rp_header_parse(uint8_t serialize_type, const uint8_t *header, uint32_t size, rp_header *out) {
    switch (serialize_type) {
        case RP_SERIALIZE_JSON: return rp_json_header_parse(header, size, out);
        case RP_SERIALIZE_ROCKETMQ: return rp_rocketmq_header_parse(header, size, out);
        default: return RP_INVALID;
    }
}
