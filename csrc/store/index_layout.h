#ifndef ROCKETPY_INDEX_LAYOUT_H
#define ROCKETPY_INDEX_LAYOUT_H
/* Where the fields of an index file's header are (docs/file-formats.md): bytes from its beginning, big-endian. C only.
 */
enum {
    BEGIN_TIMESTAMP = 0,
    END_TIMESTAMP = 8,
    BEGIN_PHY_OFFSET = 16,
    END_PHY_OFFSET = 24,
    SLOT_COUNT = 32,
    INDEX_COUNT = 36
};
#endif
