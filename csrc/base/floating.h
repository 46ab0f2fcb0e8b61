#ifndef ROCKETPY_FLOATING_H
#define ROCKETPY_FLOATING_H
/* Numbers with fraction in text, as rocketpy/filter/evaluate.py reads them. */
#include <stdint.h>
#include "base/status.h"

/* A number as Java's parseDouble reads it (`1.5`, `1e3`, `.5f`, `0x1p3`, `NaN`, `-Infinity`), blanks around it, of at
 * most 255 bytes without them: RP_OK, or RP_INVALID. */
rp_status rp_parse_double(const uint8_t *text, uint32_t size, double *value);
#endif
