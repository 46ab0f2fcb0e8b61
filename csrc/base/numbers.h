#ifndef ROCKETPY_NUMBERS_H
#define ROCKETPY_NUMBERS_H
/* Whole numbers in text, as rocketpy/message/numbers.py reads them. */
#include <stdint.h>
#include "base/status.h"

/* A decimal integer as Java's parseInt and parseLong read it: optional sign, digits only, in range; else RP_INVALID. */
rp_status rp_parse_int32(const uint8_t *text, uint32_t size, int32_t *out);
rp_status rp_parse_int64(const uint8_t *text, uint32_t size, int64_t *out);

/* Numbers with fraction in text, as rocketpy/filter/evaluate.py reads them. */

/* A number as Java's parseDouble reads it (`1.5`, `1e3`, `.5f`, `0x1p3`, `NaN`, `-Infinity`), blanks around it, of at
 * most 255 bytes without them: RP_OK, or RP_INVALID. */
rp_status rp_parse_double(const uint8_t *text, uint32_t size, double *value);
#endif
