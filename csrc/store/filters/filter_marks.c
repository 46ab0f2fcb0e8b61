/* See filter_marks.h. The id is cleared before the position changes and set after it; a reader that sees the same id
 * before and after has read its position.
 * Short: the only word between the store worker, which sets marks, and pull workers, which read them. */
#include "store/filters/filter_marks.h"
#include "base/atomic.h"

void rp_filter_marks_set(rp_filter_marks *marks, uint32_t mark, uint64_t id, uint64_t phy_offset) {
    if (mark >= RP_FILTER_MARKS) return;
    rp_store_release(&marks->marks[mark].id, 0);
    rp_full_fence(); /* orders the store of id 0 before the store of phy_offset */
    rp_store_release(&marks->marks[mark].phy_offset, phy_offset);
    rp_store_release(&marks->marks[mark].id, id);
}

uint64_t rp_filter_marks_begin(const rp_filter_marks *marks, uint32_t mark, uint64_t id) {
    if (!id || mark >= RP_FILTER_MARKS || rp_load_acquire(&marks->marks[mark].id) != id) return UINT64_MAX;
    uint64_t phy_offset = rp_load_acquire(&marks->marks[mark].phy_offset);
    return rp_load_acquire(&marks->marks[mark].id) == id ? phy_offset : UINT64_MAX;
}
