/* Run any bytes as a program of a SQL92 expression (rocketpy/filter/program.py) on any properties: 2 bytes of size,
 * the program, the properties. Whatever they are, it ends, stays within them, and the work is counted. */
#include "base/endian.h"
#include "store/filters/filter.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    uint32_t program_size = rp_load16(data), left = (uint32_t)size - 2;
    if (program_size > left) program_size = left;
    uint32_t properties_size = left - program_size;
    rp_filter *filter = rp_filter_open(data + 2, program_size);
    if (!filter) return 0;
    uint64_t work = 0;
    rp_filter_result result = rp_filter_evaluate(filter, data + 2 + program_size, properties_size, &work);
    CHECK(result >= RP_FILTER_FALSE && result <= RP_FILTER_FAULT);
    CHECK(work >= properties_size);
    rp_filter_release(filter);
    return 0;
}
