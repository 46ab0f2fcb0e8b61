/* Cut frames off a stream one after the other, and read each header, as the selector and the codec do. */
#include "invariants.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rp_frame frame;
    while (check_frame(data, (uint32_t)size, 65536) == RP_OK) {
        CHECK(rp_frame_cut(data, size, 65536, &frame) == RP_OK);
        check_header(frame.serialize_type, frame.header, frame.header_size);
        data += frame.size;
        size -= frame.size;
    }
    return 0;
}
