/* Walk a piece of CommitLog as recovery does; the CRC is not asked for, or nothing would get past it. */
#include "invariants.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rp_record_view view;
    while (check_record(data, (uint32_t)size, 0) == RP_OK) {
        CHECK(rp_record_decode(data, size, 0, &view) == RP_OK);
        data += view.size;
        size -= view.size;
    }
    return 0;
}
