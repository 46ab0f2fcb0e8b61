/* Header readers: the first byte chooses the serialisation. */
#include "invariants.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 0) check_header(data[0] & 1, data + 1, (uint32_t)size - 1);
    return 0;
}
