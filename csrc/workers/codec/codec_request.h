#ifndef ROCKETPY_CODEC_REQUEST_H
#define ROCKETPY_CODEC_REQUEST_H
/* From a parsed header to the structs that the send and pull workers read. C only. */
#include <stdint.h>
#include "wire/header.h"
#include "ipc/access.h"
#include "ipc/worker_messages.h"

/* An upper bound of the size of the ring message for this frame. */
uint32_t rp_request_bound(const rp_header *header, const rp_frame *frame, const rp_signer *signer,
                          uint32_t struct_size);
/* Fill `out` (room for the bound). Returns the size of the message, or 0 if a mandatory field is missing or malformed:
 * then the slow path answers as the reference does.
 *
 * `signer`: NULL without access control. A request that is not certainly allowed is RP_REQUEST_UNCHECKED; all ends of
 * transactions take the slow path, where the topic of the half message is read. */
uint32_t rp_send_request_fill(const rp_header *header, const rp_frame *frame, const rp_origin *origin,
                              const rp_signer *signer, uint8_t *out);
uint32_t rp_end_request_fill(const rp_header *header, const rp_frame *frame, const rp_origin *origin,
                             const rp_signer *signer, uint8_t *out);
uint32_t rp_pull_request_fill(const rp_header *header, const rp_frame *frame, const rp_origin *origin,
                              const rp_signer *signer, uint8_t *out);
#endif
